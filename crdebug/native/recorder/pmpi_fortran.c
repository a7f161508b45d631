/* Calls from Fortran. A binding (mpif.h, mpi, mpi_f08) is a library of the MPI's own, which converts
 * the arguments and asks the C library. Of MPICH's, most ask for MPI_*, which is us; the others, and
 * Open MPI's, ask for PMPI_*: these references are led to our wrappers.
 *
 * The line that called is not the binding's but the program's. So each Fortran name in the table is
 * defined here too (generated, mpi_wrappers.py): it notes the address it returns to, and goes on to
 * the binding with registers and stack as they were. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pmpi.h"
#include "pmpi_own.h"

#define MOST 8
static struct {
    uintptr_t from, to;
} bindings[MOST];
static unsigned bound;

uintptr_t binding_from = UINTPTR_MAX, binding_size;
/* Of the thread: where its last call of a Fortran name returns to. */
__thread uintptr_t crdebug_fortran_site
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

static bool in_binding(uintptr_t site) {
    for (unsigned i = 0; i < bound; i++)
        if (site >= bindings[i].from && site < bindings[i].to) return true;
    return false;
}

uint64_t caller_of_binding(uint64_t site) {
    return in_binding(site) && crdebug_fortran_site ? crdebug_fortran_site : site;
}

bool from_fortran(uint64_t site) { return site == crdebug_fortran_site || in_binding(site); }

/* ---- the Fortran names -------------------------------------------------------------------------- */

static int look_in(struct dl_phdr_info *info, size_t size, void *wanted) {
    const char **name = wanted;
    (void)size;
    if (info->dlpi_name == NULL || *info->dlpi_name == 0 ||
        strstr(info->dlpi_name, "libmpi") == NULL)
        return 0;
    void *library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, *name) : NULL;
    if (library) dlclose(library);
    if (found) *name = found;
    return found != NULL;
}

/* The binding's own function of that name: called once for each, by fortran_entries.c. */
__attribute__((visibility("hidden"))) void *crdebug_binding(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found) return found;
    /* A binding that an extension module of an interpreter has brought. */
    const char *answer = name;
    if (dl_iterate_phdr(look_in, &answer)) return (void *)(uintptr_t)answer;
    abort(); /* a program that calls it was linked against one */
}

/* ---- the references to PMPI_* ------------------------------------------------------------------- */

static void lead_one(uintptr_t *slot, uintptr_t to) {
    long page = sysconf(_SC_PAGESIZE);
    char *start = (char *)((uintptr_t)slot & ~(uintptr_t)(page - 1));
    if (*slot == to) return;
    /* Read-only if the library was bound when it was loaded; the rest of the page stays as it is. */
    if (mprotect(start, (size_t)page, PROT_READ | PROT_WRITE) == 0) *slot = to;
}

static void lead(const ElfW(Rela) * relocations, size_t bytes, const ElfW(Sym) * symbols,
                 const char *names, uintptr_t base) {
    for (size_t i = 0; i < bytes / sizeof *relocations; i++) {
        const char *name = names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
        uintptr_t to = strncmp(name, "PMPI_", 5) == 0 ? (uintptr_t)wrapper_of(name + 1) : 0;
        if (to) lead_one((uintptr_t *)(base + relocations[i].r_offset), to);
    }
}

/* libmpi_mpifh, libmpi_usempi*; libmpichfort, libmpifort. crdebug/travel/call_sites.py knows them too. */
static bool is_binding(const char *path) {
    const char *file = path ? strrchr(path, '/') : NULL;
    if (file == NULL || strncmp(file, "/libmpi", 7) != 0) return false;
    return strstr(file, "mpifh") || strstr(file, "usempi") || strstr(file, "fort");
}

static int find(struct dl_phdr_info *info, size_t size, void *unused) {
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Rela) *jumps = NULL, *others = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t jumps_size = 0, others_size = 0;
    (void)size, (void)unused;
    if (bound == MOST || !is_binding(info->dlpi_name)) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC) dynamic = (const void *)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            bindings[bound].from = info->dlpi_addr + part->p_vaddr;
            bindings[bound].to = bindings[bound].from + part->p_memsz;
        }
    }
    if (in_binding(bindings[bound].from)) return 0; /* known */
    bound++;
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) switch (dynamic->d_tag) {
        case DT_JMPREL: jumps = (const void *)dynamic->d_un.d_ptr; break;
        case DT_PLTRELSZ: jumps_size = dynamic->d_un.d_val; break;
        case DT_RELA: others = (const void *)dynamic->d_un.d_ptr; break;
        case DT_RELASZ: others_size = dynamic->d_un.d_val; break;
        case DT_SYMTAB: symbols = (const void *)dynamic->d_un.d_ptr; break;
        case DT_STRTAB: names = (const void *)dynamic->d_un.d_ptr; break;
        }
    if (symbols == NULL || names == NULL) return 0;
    if (jumps) lead(jumps, jumps_size, symbols, names, info->dlpi_addr);
    if (others) lead(others, others_size, symbols, names, info->dlpi_addr);
    return 0;
}

/* Again at MPI_Init: an interpreter may have brought a binding by then. */
__attribute__((constructor)) void find_bindings(void) {
    uintptr_t to = 0;
    dl_iterate_phdr(find, NULL);
    for (unsigned i = 0; i < bound; i++) {
        if (bindings[i].from < binding_from) binding_from = bindings[i].from;
        if (bindings[i].to > to) to = bindings[i].to;
    }
    binding_size = bound ? to - binding_from : 0;
}
