/* Could the layer have written this? A wild store of the program can reach its rank's log.
 *
 * What is read is believed in its numbers of ranks, requests, partitions and words, which lead to
 * memory and to loops; so these are looked at before. What is only told, a tag or the bytes of a message,
 * may be anything. */
#include "history_log.h"

#define MOST (1u << 20) /* partitions of a message; members of a group that are of other jobs */

static bool is_rank(const struct log *log, int32_t rank) {
    return rank == NONE || rank == UNKNOWN || (rank >= 0 && rank < log->world);
}

/* Pairs of a first rank and how many there are, as in a definition and for a group. */
static bool are_groups(const struct log *log, const uint32_t *words, uint64_t count) {
    uint64_t members = 0;
    for (uint64_t k = 0; k + 1 < count; k += 2) {
        uint64_t first = words[k], more = words[k + 1];
        members += more;
        if (more == 0 || members > MOST ||
            (first != UINT32_MAX && first + more > (uint64_t)log->world))
            return false;
    }
    return true;
}

static bool is_definition(const struct log *log, uint64_t head, uint64_t body,
                          const uint32_t *words, uint64_t count) {
    uint64_t size = head >> 32;
    if (body >> 48 == 0 || size < 2 || size > count || words[0] > size - 2) return false;
    if (words[0] == 0 || words[0] % 2 || (size - words[0]) % 2)
        return false; /* nobody is in none */
    return are_groups(log, words + 2, words[0]) &&
           are_groups(log, words + 2 + words[0], size - 2 - words[0]);
}

static bool are_slots(const struct log *log, uint64_t place, uint64_t size, uint64_t count) {
    if (size > count / CRDEBUG_SLOT) return false;
    for (uint64_t k = 1; k <= size; k++) {
        const uint32_t *slot = slot_of(record_at(log, place), (int64_t)k);
        const struct comm *comm = comm_at(&log->comms, slot[CRDEBUG_SLOT_COMM], place);
        if (!is_rank(log, coded(comm, slot[CRDEBUG_SLOT_PEER] & PEER_MOST))) return false;
    }
    return true;
}

bool log_is_sound(const struct log *log, const struct function *functions, uint64_t tail) {
    uint64_t place = log->at.place, head = record_at(log, place)->head,
             body = record_at(log, place)->body;
    uint64_t size = head >> 32, count = 0;
    const uint32_t *words = (const uint32_t *)(record_at(log, place) + 1) + 1;
    const struct function *function = &functions[head & 0x1ff];
    uint32_t special = (uint32_t)function->special;
    if (head & FLAG(CRDEBUG_MORE)) {
        if (place + 1 >= tail) return false;
        uint64_t more = words[-1] & CRDEBUG_MORE_MOST;
        if (more == 0 || more >= tail - place) return false;
        count = 4 * more - 1;
    }
    if ((head & 0x1ff) == DEFINITION) return is_definition(log, head, body, words, count);
    if (function->shape < 0) return false;
    if (head & FLAG(CRDEBUG_NO)) return true;
    if (special & F_STARTALL) return are_slots(log, place, size, count);
    if (special & F_ALL && head & FLAG(CRDEBUG_PACKED)) return size <= log->at.posted;
    if (special & (F_EXPOSES | F_ACCESSES))
        return size <= count + 1 && are_groups(log, words, size < count ? size : count);
    if (special & F_PREPARES) return count <= 4 || words[4] <= MOST;
    return true;
}

bool call_is_sound(const struct log *log, const struct function *functions,
                   const struct call *call) {
    if (call->failed && call->kind == K_OTHER) return true; /* its peer may be none: nobody asks */
    if (!is_rank(log, call->peer) || !is_rank(log, call->peer2)) return false;
    if (!(functions[call->function].special & (F_READIES | F_ARRIVED)) || call->kind == K_NOTHING)
        return true;
    return call->low >= UNKNOWN && call->high >= UNKNOWN && call->high <= (int32_t)MOST;
}
