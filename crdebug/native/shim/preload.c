/* Sanitizers' runtimes and LD_PRELOAD.
 *
 * AddressSanitizer's runtime refuses to start a program when another library comes before it in the
 * list of those that are loaded ("ASan runtime does not come first in initial library list",
 * compiler-rt/lib/asan/asan_linux.cpp): its replacements of malloc and others are to be found first. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* gcc's, and clang's with -shared-libsan. */
static const char *const runtimes[] = {"libasan.so",        "libtsan.so",       "liblsan.so",
                                       "libhwasan.so",      "libclang_rt.asan", "libclang_rt.tsan",
                                       "libclang_rt.hwasan"};

int is_runtime(const char *library, size_t length) {
    size_t start = length;
    while (start > 0 && library[start - 1] != '/') start--;
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
        size_t wanted = strlen(runtimes[i]);
        if (length - start >= wanted && strncmp(library + start, runtimes[i], wanted) == 0)
            return 1;
    }
    return 0;
}

size_t runtimes_first(const char *list) {
    size_t taken = 0;
    for (;;) {
        size_t length = strcspn(list + taken, ": ");
        if (!is_runtime(list + taken, length)) return taken;
        taken += length;
        taken += strspn(list + taken, ": ");
    }
}

static int read_at(int file, void *to, size_t size, uint64_t place) {
    return pread(file, to, size, (off_t)place) == (ssize_t)size ? 0 : -1;
}

/* Where in the file an address of the loaded program is; 0 if it is in no segment. */
static uint64_t place_of(int file, const Elf64_Ehdr *header, uint64_t address) {
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        if (read_at(file, &segment, sizeof segment, header->e_phoff + i * sizeof segment) != 0)
            return 0;
        if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
            address - segment.p_vaddr < segment.p_filesz)
            return segment.p_offset + (address - segment.p_vaddr);
    }
    return 0;
}

static int among_needed(int file, const Elf64_Ehdr *header, const Elf64_Phdr *dynamic, char *name) {
    uint64_t count = dynamic->p_filesz / sizeof(Elf64_Dyn), names = 0;
    Elf64_Dyn entry;
    for (uint64_t i = 0; i < count; i++) {
        if (read_at(file, &entry, sizeof entry, dynamic->p_offset + i * sizeof entry) != 0)
            return 0;
        if (entry.d_tag == DT_STRTAB) names = place_of(file, header, entry.d_un.d_ptr);
    }
    for (uint64_t i = 0; names != 0 && i < count; i++) {
        if (read_at(file, &entry, sizeof entry, dynamic->p_offset + i * sizeof entry) != 0)
            return 0;
        if (entry.d_tag != DT_NEEDED) continue;
        ssize_t got =
            pread(file, name, CRDEBUG_LONGEST_RUNTIME - 1, (off_t)(names + entry.d_un.d_val));
        if (got <= 0) continue;
        name[got] = 0;
        if (strlen(name) < (size_t)got && is_runtime(name, strlen(name))) return 1;
    }
    return 0;
}

int runtime_of(const char *program, char name[CRDEBUG_LONGEST_RUNTIME]) {
    int file = open(program, O_RDONLY | O_CLOEXEC), found = 0;
    if (file < 0) return 0;
    Elf64_Ehdr header;
    if (read_at(file, &header, sizeof header, 0) == 0 &&
        memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
        header.e_phentsize == sizeof(Elf64_Phdr))
        for (unsigned i = 0; i < header.e_phnum && !found; i++) {
            Elf64_Phdr segment;
            if (read_at(file, &segment, sizeof segment, header.e_phoff + i * sizeof segment) != 0)
                break;
            if (segment.p_type == PT_DYNAMIC) found = among_needed(file, &header, &segment, name);
        }
    close(file);
    return found;
}
