/* Stop at lines of Python. crdebug writes the lines that it wants into `crdebug_python`, and has a
 * breakpoint at a function of its own for each; CPython calls `traced` before each line that it runs
 * (PyEval_SetTrace, "Profiling and Tracing" in its C API).
 *
 * The process may run no Python, so all of the C API is found by name. Of CPython's structs nothing
 * is known here: any version from 3.8 on will do. */
#define _GNU_SOURCE 1
#include "../recorder/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define LINES 32

enum { OFF = 0, ASKED = 1, TRACING = 2, TAKEN = 3 };
enum { STEP = 1, NEXT = 2, FINISH = 3 };

/* crdebug/gdbscripts/wire.py has the same. The debugger writes all up to `counted`; into `state`
 * only ASKED. */
EXPORT struct {
    uint32_t state; /* TAKEN: the program has a trace function of its own */
    uint32_t line[LINES]; /* 0: not in use */
    char file[LINES][512]; /* the end of its path, from a component's beginning on */
    char condition[LINES][512]; /* an expression of Python's; "": always */
    uint32_t step, steps; /* from the present stop on: of which kind, and how many; 0: none */
    uint32_t deepest; /* count lines in functions at most so deep; 0: none */
    uint32_t wanted; /* the number of the one at which to stop; 0: at none */
    uint32_t counted;
    uint64_t now; /* the recorder's clock at the last of them; 0 without one */
    uint32_t depth; /* of the function at the last stop; 1 is the outermost */
    uint32_t passed; /* breakpoints at the line that runs */
    uint32_t at; /* the last stop's line, function and file */
    char function[256];
    char path[1024];
} crdebug_python;

static pthread_t stepping; /* the thread that does, and the function in whose lines it stops */
static struct object *within; /* borrowed: it is being executed */

EXPORT int crdebug_python_begin(void *unused);
EXPORT int crdebug_python_audit(const char *event, void *arguments, void *unused);

extern EXPORT volatile int MPIR_debug_with_checkpoint; /* is a debugger around? (shim.c) */

/* For breakpoints: crdebug_python_stop_0 and so on; then one for steps, one for TAKEN, and
 * one for lines that are counted. */
__asm__(".text\n"
        ".irp "
        "n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,"
        "32,33,34\n"
        ".p2align 4\n"
        ".globl crdebug_python_stop_\\n\n"
        ".type crdebug_python_stop_\\n, @function\n"
        "crdebug_python_stop_\\n:\n"
        ".cfi_startproc\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size crdebug_python_stop_\\n, . - crdebug_python_stop_\\n\n"
        ".endr\n");
extern EXPORT void crdebug_python_stop_0(void);

static void pass(int number) {
    ((void (*)(void))((uintptr_t)crdebug_python_stop_0 + 16 * (uintptr_t)number))();
}

struct object;
typedef int trace(struct object *, struct object *, int, struct object *);
enum { LINE = 2, RETURN = 3, EXPRESSION = 258 }; /* PyTrace_LINE, ..., Py_eval_input */

static struct {
    struct object *None;
    const struct crdebug_clock *clock; /* of the recorder, if it is there */
    int (*IsInitialized)(void);
    void (*SetTrace)(trace *, struct object *);
    void (*SetTraceAllThreads)(trace *, struct object *); /* since 3.12 */
    struct object *(*GetObject)(const char *);
    struct object *(*CallObject)(struct object *, struct object *);
    struct object *(*GetAttrString)(struct object *, const char *);
    int (*GetLineNumber)(struct object *);
    const char *(*AsUTF8)(struct object *);
    struct object *(*CompileString)(const char *, const char *, int);
    struct object *(*EvalCode)(struct object *, struct object *, struct object *);
    int (*IsTrue)(struct object *);
    void (*Clear)(void);
    void (*DecRef)(struct object *);
} py;

static int find_all(void) {
    static const struct {
        const char *name;
        void **where;
    } wanted[] = {
        {"_Py_NoneStruct", (void **)&py.None},
        {"Py_IsInitialized", (void **)&py.IsInitialized},
        {"PyEval_SetTrace", (void **)&py.SetTrace},
        {"PySys_GetObject", (void **)&py.GetObject},
        {"PyObject_CallObject", (void **)&py.CallObject},
        {"PyObject_GetAttrString", (void **)&py.GetAttrString},
        {"PyFrame_GetLineNumber", (void **)&py.GetLineNumber},
        {"PyUnicode_AsUTF8", (void **)&py.AsUTF8},
        {"Py_CompileString", (void **)&py.CompileString},
        {"PyEval_EvalCode", (void **)&py.EvalCode},
        {"PyObject_IsTrue", (void **)&py.IsTrue},
        {"PyErr_Clear", (void **)&py.Clear},
        {"Py_DecRef", (void **)&py.DecRef},
    };
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((*wanted[i].where = dlsym(RTLD_DEFAULT, wanted[i].name)) == NULL) return 0;
    py.clock = dlsym(RTLD_DEFAULT, "crdebug_clock");
    *(void **)&py.SetTraceAllThreads = dlsym(RTLD_DEFAULT, "PyEval_SetTraceAllThreads");
    return 1;
}

static void set_trace(trace *function) {
    (py.SetTraceAllThreads != NULL ? py.SetTraceAllThreads : py.SetTrace)(function, NULL);
}

/* A text that is an attribute of an object; "" if there is none. */
static void get_text(struct object *object, const char *name, char *text, size_t size) {
    struct object *found = py.GetAttrString(object, name);
    const char *data = found != NULL ? py.AsUTF8(found) : NULL;
    if (data == NULL) py.Clear();
    text[0] = 0;
    strncat(text, data != NULL ? data : "", size - 1);
    py.DecRef(found);
}

static int ends_with(const char *path, const char *end) {
    size_t all = strlen(path), part = strlen(end);
    if (part == 0 || part > all || strcmp(path + all - part, end) != 0) return 0;
    return part == all || end[0] == '/' || path[all - part - 1] == '/';
}

/* The code of a condition, compiled when it is needed first; NULL if it has an error. */
static struct object *code_of(int number) {
    static struct {
        char condition[sizeof crdebug_python.condition[0]];
        struct object *code;
    } compiled[LINES], *known;
    const char *wanted = crdebug_python.condition[number];
    known = &compiled[number];
    if (known->code == NULL || strcmp(known->condition, wanted) != 0) {
        py.DecRef(known->code);
        known->code = py.CompileString(wanted, "<condition>", EXPRESSION);
        memcpy(known->condition, wanted, sizeof known->condition);
    }
    return known->code;
}

/* A condition that cannot be evaluated is true, as GDB has it: the user should see why. */
static int is_true(int number, struct object *frame) {
    struct object *globals = py.GetAttrString(frame, "f_globals");
    struct object *locals = py.GetAttrString(frame, "f_locals");
    struct object *code = code_of(number), *value = NULL;
    if (globals != NULL && locals != NULL && code != NULL)
        value = py.EvalCode(code, globals, locals);
    int truth = value != NULL ? py.IsTrue(value) : -1;
    if (truth < 0) py.Clear();
    py.DecRef(value);
    py.DecRef(locals);
    py.DecRef(globals);
    return truth != 0;
}

static struct object *caller_of(struct object *frame) {
    struct object *found = py.GetAttrString(frame, "f_back");
    if (found == NULL) py.Clear();
    py.DecRef(found); /* it is being executed, or None */
    return found;
}

/* 1 for one that was not called by Python. */
static uint32_t depth_of(struct object *frame) {
    uint32_t depth = 0;
    for (; frame != NULL && frame != py.None; frame = caller_of(frame)) depth++;
    return depth;
}

static void stop(int number, uint32_t line, const char *path, struct object *frame,
                 struct object *code) {
    crdebug_python.at = line;
    strcpy(crdebug_python.path, path);
    get_text(code, "co_qualname", crdebug_python.function, sizeof crdebug_python.function);
    if (crdebug_python.function[0] == 0) /* before 3.11 */
        get_text(code, "co_name", crdebug_python.function, sizeof crdebug_python.function);
    crdebug_python.depth = depth_of(frame);
    crdebug_python.step = 0;
    stepping = pthread_self();
    within = frame;
    crdebug_python.passed += number < LINES;
    pass(number);
}

/* Stops at each breakpoint of this line; where there is none, if a step ends here; and if it is the
 * line whose number was wanted. */
static void at_line(uint32_t line, int step_ends, int is_it, struct object *frame) {
    struct object *code = py.GetAttrString(frame, "f_code");
    char path[sizeof crdebug_python.path];
    int has_stopped = 0;
    if (code == NULL) {
        py.Clear();
        return;
    }
    get_text(code, "co_filename", path, sizeof path);
    for (int i = 0; i < LINES; i++)
        if (crdebug_python.line[i] == line && ends_with(path, crdebug_python.file[i]) &&
            (crdebug_python.condition[i][0] == 0 || is_true(i, frame))) {
            stop(i, line, path, frame, code);
            has_stopped = 1;
        }
    if (step_ends && !has_stopped) stop(LINES, line, path, frame, code);
    if (is_it) stop(LINES + 2, line, path, frame, code);
    py.DecRef(code);
}

static int is_stepping(void) {
    return crdebug_python.step != 0 && pthread_equal(stepping, pthread_self());
}

static int is_step_end(struct object *frame) {
    if (!is_stepping() || crdebug_python.step == FINISH) return 0;
    if (crdebug_python.step == NEXT && frame != within) return 0;
    return --crdebug_python.steps == 0;
}

static int is_counted_one(struct object *frame) {
    if (crdebug_python.deepest == 0 ||
        (crdebug_python.deepest != UINT32_MAX && depth_of(frame) > crdebug_python.deepest))
        return 0;
    crdebug_python.now = py.clock != NULL ? py.clock->now : 0;
    return ++crdebug_python.counted == crdebug_python.wanted;
}

/* Of every thread that is traced, with the interpreter's lock; CPython does not trace what it does. */
static int traced(struct object *self, struct object *frame, int what, struct object *argument) {
    (void)self, (void)argument;
    if (what == RETURN && frame == within && is_stepping()) {
        within = caller_of(frame);
        if (crdebug_python.step == FINISH) crdebug_python.step = NEXT;
    }
    if (what != LINE) return 0;
    uint32_t line = (uint32_t)py.GetLineNumber(frame);
    uint32_t any = crdebug_python.step | crdebug_python.deepest;
    int wanted = 0, step_ends = is_step_end(frame), is_it = is_counted_one(frame);
    crdebug_python.passed = 0;
    for (int i = 0; i < LINES; i++) {
        any |= crdebug_python.line[i];
        wanted |= crdebug_python.line[i] == line && line != 0;
    }
    if (wanted || step_ends || is_it) at_line(line, step_ends, is_it, frame);
    if (any == 0 || !MPIR_debug_with_checkpoint) {
        crdebug_python.state = OFF;
        set_trace(NULL);
    }
    return 0;
}

static int has_other_tracer(void) {
    struct object *gettrace = py.GetObject("gettrace"); /* borrowed */
    struct object *found = gettrace != NULL ? py.CallObject(gettrace, NULL) : NULL;
    int other = found != NULL && found != py.None;
    if (found == NULL) py.Clear();
    py.DecRef(found);
    return other;
}

/* Called by Python where it is safe (Py_AddPendingCall), with its lock. */
EXPORT int crdebug_python_begin(void *unused) {
    (void)unused;
    if (crdebug_python.state != ASKED || !find_all()) return 0;
    if (has_other_tracer()) {
        crdebug_python.state = TAKEN;
        pass(LINES + 1);
        return 0;
    }
    crdebug_python.state = TRACING;
    set_trace(traced);
    return 0;
}

/* For a Python that has not begun yet (PySys_AddAuditHook may be called before): the first event
 * after that. A hook stays for ever, and may be there several times. */
EXPORT int crdebug_python_audit(const char *event, void *arguments, void *unused) {
    (void)event, (void)arguments;
    if (crdebug_python.state == ASKED && find_all() && py.IsInitialized())
        crdebug_python_begin(unused);
    return 0;
}
