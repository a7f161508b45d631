/*
 * The code that a thread of the rank executes to clone the process. machine_code.py contains it
 * assembled, which a test checks. Position-independent, without a stack, and in a page of its own,
 * whose second half is data.
 *
 * The thread begins at `start`, with all signals blocked. It makes a helper, which shares its memory
 * and descriptors; the helper makes the copy, stores a PID file descriptor of it, and ends. So the
 * copy's parent is the job's first process, and no wait of the program can see it. The debugger stops
 * the thread at `closes`, where it enters close, lets it finish that call, and takes it back. If the
 * debugger has died, the thread goes on to `restore`, and back to its old place on its own.
 *
 * The copy waits for the debugger, which leads it through `setup`: it closes its descriptors, takes
 * a name, and becomes a second thread that outlives the first. A program that counts processes then
 * sees a dead one. A copy that nobody holds ends.
 */
    .text
start:
    mov $56, %eax /* clone: CLONE_VM | CLONE_FILES | CLONE_UNTRACED, without an exit signal */
    mov $0x800500, %edi
    xor %esi, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    xor %r8d, %r8d
    syscall
    test %rax, %rax
    jz helper
    js restore
    mov %rax, %rdi
again:
    mov $61, %eax /* wait4: for the helper, __WALL */
    xor %esi, %esi
    mov $0x40000000, %edx
    xor %r10d, %r10d
    syscall
    cmp $-4, %rax /* EINTR */
    je again
closes:
    mov pidfd(%rip), %edi
    mov $3, %eax /* close */
    syscall
restore:
    mov $14, %eax /* rt_sigprocmask: SIG_SETMASK */
    mov $2, %edi
    lea mask(%rip), %rsi
    xor %edx, %edx
    mov $8, %r10d
    syscall
    mov overflow(%rip), %al
    add $0x7f, %al
    mov flags(%rip), %ah
    sahf
    mov saved_rdi(%rip), %rdi
    mov saved_rsi(%rip), %rsi
    mov saved_rdx(%rip), %rdx
    mov saved_r10(%rip), %r10
    mov saved_r8(%rip), %r8
    mov saved_rcx(%rip), %rcx
    mov saved_r11(%rip), %r11
    mov saved_rax(%rip), %rax
    jmp *saved_rip(%rip)
helper:
    mov $56, %eax /* clone: CLONE_UNTRACED | CLONE_PIDFD */
    mov $0x801000, %edi
    xor %esi, %esi
    lea pidfd(%rip), %rdx
    xor %r10d, %r10d
    xor %r8d, %r8d
    syscall
    test %rax, %rax
    jz copy
    mov %rax, result(%rip)
    xor %edi, %edi
    mov $60, %eax /* exit */
    syscall
    .balign 16
setup:
    mov $436, %eax /* close_range: all */
    xor %edi, %edi
    mov $0xffffffff, %esi
    xor %edx, %edx
    syscall
    mov %rax, closed(%rip)
    mov $157, %eax /* prctl: PR_SET_NAME */
    mov $15, %edi
    lea name(%rip), %rsi
    syscall
    mov $56, %eax /* clone: CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM */
    mov $0x50f00, %edi
    xor %esi, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    xor %r8d, %r8d
    syscall
    test %rax, %rax
    jz linger
    xor %edi, %edi
    mov $60, %eax /* exit: this thread alone */
    syscall
copy:
    mov $157, %eax /* prctl: PR_SET_PTRACER, PR_SET_PTRACER_ANY */
    mov $0x59616d61, %edi
    mov $-1, %rsi
    syscall
linger:
    mov $35, %eax /* nanosleep */
    lea patience(%rip), %rdi
    xor %esi, %esi
    syscall
    mov $231, %eax /* exit_group */
    xor %edi, %edi
    syscall
    .org 0x200
result:
    .quad 0 /* the helper's result of clone */
pidfd:
    .quad -1
closed:
    .quad 0 /* the result of close_range */
mask:
    .quad 0
overflow:
    .byte 0 /* 1 if the flag is set */
flags:
    .byte 0 /* the lowest byte of the flags */
    .balign 8
saved_rdi:
    .quad 0
saved_rsi:
    .quad 0
saved_rdx:
    .quad 0
saved_r10:
    .quad 0
saved_r8:
    .quad 0
saved_rcx:
    .quad 0
saved_r11:
    .quad 0
saved_rax:
    .quad 0
saved_rip:
    .quad 0
patience:
    .quad 10, 0 /* seconds */
name:
    .asciz "crdebug-frozen"
