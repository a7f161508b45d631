/* What a program may ask of crdebug. All of it works without crdebug too: every call then returns
 * CRDEBUG_NOT_HERE at once. From any thread; never from a signal handler. See docs/app.md.
 *
 * After the interfaces of Open MPI 1.5's C/R (OMPI_CR_CHECKPOINT, OMPI_CR_RESTART,
 * OMPI_CR_QUIESCE_START/END, OMPI_CR_INC_register_callback; Hursey 2010, appendix A). */
#ifndef CRDEBUG_APP_H
#define CRDEBUG_APP_H

#ifdef __cplusplus
extern "C" {
#endif

enum crdebug_status {
    CRDEBUG_DONE = 0,      /* of crdebug_checkpoint: taken, and this is the run that goes on */
    CRDEBUG_NOT_HERE = -1, /* there is no crdebug that could do it */
    CRDEBUG_REFUSED = -2,  /* not now: crdebug_reason() says why */
    CRDEBUG_FAILED = -3    /* it was tried: crdebug_reason() says what went wrong */
};

enum crdebug_moment {
    CRDEBUG_BEFORE_CHECKPOINT = 0,
    CRDEBUG_AFTER_CONTINUE = 1, /* the checkpoint was taken, or came to nothing: the run goes on */
    CRDEBUG_AFTER_RESTART = 2 /* the job was brought back from the checkpoint */
};

/* Take a checkpoint of the whole job. Any rank may ask, alone; ranks that ask at the same time get
 * one checkpoint. note: to recognise it by, or NULL. number: becomes the checkpoint's, unless NULL.
 * Returns CRDEBUG_DONE once it is whole; or N > 0 in the job that was brought back from it, which
 * has been restarted N times so far; or an error, and there is no checkpoint. */
int crdebug_checkpoint(const char *note, int *number);

/* Bring the whole job back to checkpoint `number`, the newest if it is 0. Any rank may ask, alone.
 * Returns only when that cannot be done. */
int crdebug_restart(int number);

/* No checkpoint between these two, whoever wants it: it is put off, or refused with the rank named.
 * Regions may be nested, and overlap in several threads. Start waits while one is being taken. */
int crdebug_quiet_start(void);
int crdebug_quiet_end(void);

/* Called around every checkpoint that users, operators or the program want, in a thread of its own,
 * while the program runs on: last registered first before, first registered first afterwards. What
 * must not change meanwhile, lock before and unlock after: it is the same thread. Not 0 before a
 * checkpoint refuses it. In it: no crdebug_checkpoint, crdebug_restart, crdebug_register. */
typedef int crdebug_callback(int moment, void *data);
int crdebug_register(crdebug_callback *callback, void *data);

/* For a callback: `return crdebug_refuse("the device is busy");` */
int crdebug_refuse(const char *reason);

/* Why the latest call of this process was refused or failed; "" if none was. */
const char *crdebug_reason(void);

#ifdef __cplusplus
}
#endif

#endif
