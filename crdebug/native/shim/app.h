/* What the program asks and what crdebug answers: a struct in each rank, beside the shim's own, read
 * and written from outside (crdebug/native/shim/app_layout.py mirrors it). Grows only at its end. */
#ifndef CRDEBUG_NATIVE_APP_H
#define CRDEBUG_NATIVE_APP_H

#include "crdebug.h"

#define CRDEBUG_APP_ABI 1u
/* In the job's directory, see places.h. */
#define CRDEBUG_ASKS "asks" /* a FIFO: who reads it answers; a line for each call of it */
#define CRDEBUG_DOOR "door" /* a FIFO: who has closed the door reads it, and no more */

enum crdebug_wish { CRDEBUG_WISH_CHECKPOINT = 1, CRDEBUG_WISH_RESTART = 2 };

/* In the rank's private memory: a restore takes it back with everything else. (out) is written from
 * outside, all else by the rank. */
struct crdebug_app {
    uint32_t abi;
    uint32_t size; /* sizeof(struct crdebug_app) */
    uint32_t quiet; /* quiet regions that the rank is in */
    uint32_t door; /* (out) 1: no quiet region may begin */
    uint32_t asked; /* grows with each wish; the fields for it were written before */
    uint32_t answered; /* (out) equals `asked` once the answer is there */
    int32_t wish; /* enum crdebug_wish */
    int32_t wanted; /* of a restart: from which checkpoint, 0 the newest */
    int32_t status; /* (out) the answer */
    int32_t number; /* (out) of the checkpoint */
    uint32_t callbacks; /* that are registered */
    uint32_t call; /* (out) grows with each call that is wanted */
    uint32_t called; /* equals `call` once the callbacks have returned */
    int32_t moment; /* (out) enum crdebug_moment, of the call */
    int32_t refused; /* what the callback returned that would not have the checkpoint */
    int32_t helper; /* TID of the thread that runs them, 0 if there is none */
    char note[128];
    char reason[256]; /* (out) of an answer that is no success */
    char refusal[256];
};

#endif
