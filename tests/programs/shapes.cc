// C++ with OpenMP: classes, templates, overloads, containers and exceptions to look at.

#include <cstdio>
#include <map>
#include <mpi.h>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace geometry {

class Shape {
  public:
    explicit Shape(std::string name) : name_(std::move(name)) {}
    virtual ~Shape() = default;
    virtual double area() const = 0;
    const std::string &name() const { return name_; }

  private:
    std::string name_;
};

class Square : public Shape {
  public:
    explicit Square(double side) : Shape("square"), side_(side) {}
    double area() const override { return side_ * side_; }
    void scale(int factor) { side_ *= factor; }
    void scale(double factor) { side_ *= factor; }

  private:
    double side_;
};

template <typename T> T sum(const std::vector<T> &values) {
    T total = 0;
    for (const T &value : values) total += value;
    return total;
}

} // namespace geometry

static int ready;

static void prepare(int value) {
    ready = value; // before MPI is
}

static double check(int rank, double total) {
    if (rank == 1) throw std::runtime_error("rank 1 does not like it");
    return total;
}

int main(int argc, char **) {
    prepare(argc);
    MPI_Init(nullptr, nullptr);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    geometry::Square square(rank + 1);
    square.scale(2);
    square.scale(0.5);
    std::vector<double> areas(4, square.area());
    std::map<std::string, int> owners = {{square.name(), rank}, {"none", -1}};
    long counted = 0;
#pragma omp parallel for num_threads(3) reduction(+ : counted)
    for (int i = 0; i < 3; i++) {
        counted += i + rank; // in a thread of its own
    }
    double total = geometry::sum(areas), all = 0;
    try {
        total = check(rank, total);
    } catch (const std::runtime_error &) {
        total = -1;
    }
    MPI_Allreduce(&total, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) std::printf("%g %ld %zu\n", all, counted, owners.size());
    std::fflush(stdout);
    if (ready != argc) throw std::logic_error("somebody has changed it");
    MPI_Finalize();
}
