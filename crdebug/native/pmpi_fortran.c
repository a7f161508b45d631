/* Calls from Fortran. Open MPI's bindings (mpif.h, mpi, mpi_f08) are in one library that asks the C
 * library by its PMPI names: these references are led to our wrappers, so that all three are
 * counted, and arguments are converted by who knows how. */
#define _GNU_SOURCE 1
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pmpi.h"
#include "pmpi_own.h"

static uintptr_t fortran_from, fortran_to;

bool from_fortran(uint64_t site) { return site >= fortran_from && site < fortran_to; }

static void lead_one(uintptr_t *slot, uintptr_t to) {
    long page = sysconf(_SC_PAGESIZE);
    char *start = (char *)((uintptr_t)slot & ~(uintptr_t)(page - 1));
    if (*slot == to) return;
    /* Read-only if the library was bound when it was loaded; the rest of the page stays as it is. */
    if (mprotect(start, (size_t)page, PROT_READ | PROT_WRITE) == 0) *slot = to;
}

static void lead(const ElfW(Rela) *relocations, size_t bytes, const ElfW(Sym) *symbols, const char *names,
                 uintptr_t base) {
    for (size_t i = 0; i < bytes / sizeof *relocations; i++) {
        const char *name = names + symbols[ELF64_R_SYM(relocations[i].r_info)].st_name;
        uintptr_t to = strncmp(name, "PMPI_", 5) == 0 ? (uintptr_t)wrapper_of(name + 1) : 0;
        if (to) lead_one((uintptr_t *)(base + relocations[i].r_offset), to);
    }
}

static int find(struct dl_phdr_info *info, size_t size, void *unused) {
    const ElfW(Dyn) *dynamic = NULL;
    const ElfW(Rela) *jumps = NULL, *others = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL, *file = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    size_t jumps_size = 0, others_size = 0;
    (void)size, (void)unused;
    if (file == NULL || strncmp(file, "/libmpi_mpifh.so", 16) != 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC) dynamic = (const void *)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            fortran_from = info->dlpi_addr + part->p_vaddr;
            fortran_to = fortran_from + part->p_memsz;
        }
    }
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) switch (dynamic->d_tag) {
        case DT_JMPREL: jumps = (const void *)dynamic->d_un.d_ptr; break;
        case DT_PLTRELSZ: jumps_size = dynamic->d_un.d_val; break;
        case DT_RELA: others = (const void *)dynamic->d_un.d_ptr; break;
        case DT_RELASZ: others_size = dynamic->d_un.d_val; break;
        case DT_SYMTAB: symbols = (const void *)dynamic->d_un.d_ptr; break;
        case DT_STRTAB: names = (const void *)dynamic->d_un.d_ptr; break;
        }
    if (symbols == NULL || names == NULL) return 1;
    if (jumps) lead(jumps, jumps_size, symbols, names, info->dlpi_addr);
    if (others) lead(others, others_size, symbols, names, info->dlpi_addr);
    return 1;
}

__attribute__((constructor)) static void lead_fortran(void) {
#if defined(OPEN_MPI) && defined(__x86_64__)
    dl_iterate_phdr(find, NULL);
#endif
}
