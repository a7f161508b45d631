// What the stepper's requests and waits have in common; inside of the library only.

#ifndef CRDEBUG_WALK_WAIT_H
#define CRDEBUG_WALK_WAIT_H

#include "walk.h"

// While they run, every wait looks now and then at the time, and at what the thread does.
int walk_start_ticks(void);
void walk_end_ticks(void);

// From here on, 0 or how the walk ended.
int walk_failed(struct walk *w);
int walk_set_pc(struct walk *w, uint64_t pc);
int walk_get_registers(struct walk *w);
int walk_await(struct walk *w, int *status); // for the thread's next stop, of whatever kind
int walk_resume(struct walk *w, int request, int number);
int walk_fatal(struct walk *w, int number);

int walk_signal_of(int status); // of a stop; 0 if it is a trap
int walk_passed(const struct walk *w, int number); // the signal, if the program is to get it

#endif
