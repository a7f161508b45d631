/* The layer's log: recording, repeating, and noticing that a call is another one than recorded. */
#include <string.h>

#include "pmpi.h"

#define FEW 64 /* words of a message to the disk that are compared */

static struct {
    uint64_t address;
    uint32_t number;
} known_sites[1024];

uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

void refuse(unsigned reason) {
    if (C.refused) return;
    C.refused = reason;
    if (C.mode == CRDEBUG_RECORDS) log_header->refused = reason;
    C.mode = CRDEBUG_COUNTS;
}

static uint32_t site_number(uint64_t address) {
    unsigned place = (unsigned)(mix(0, address) % 1024);
    if (LIKELY(known_sites[place].address == address)) return known_sites[place].number;
    uint32_t number = 0;
    while (number < log_header->sites && site_table[number] != address) number++;
    if (number == log_header->sites) {
        if (number == CRDEBUG_SITES) return CRDEBUG_SITES - 1; /* the last is shared */
        site_table[number] = address;
        log_header->sites = number + 1;
    }
    known_sites[place].address = address;
    known_sites[place].number = number;
    return number;
}

/* ---- the words that follow a record ------------------------------------------------------------- */

static uint32_t followers(const struct crdebug_record *record) {
    return record->head & FLAG(CRDEBUG_MORE) ? (uint32_t)record[1].head & CRDEBUG_MORE_MOST : 0;
}

static uint32_t failed_of(const struct crdebug_record *record) {
    return record->head & FLAG(CRDEBUG_MORE) ? (uint32_t)record[1].head >> CRDEBUG_FAILED_SHIFT : 0;
}

uint32_t failure_of(int rc) {
    int class;
    if (PMPI_Error_class(rc, &class) != MPI_SUCCESS) return CRDEBUG_OTHER_ERROR;
    return failure_of_class(class);
}

uint32_t failure_of_class(int class) {
    static const int classes[] = {CRDEBUG_ERRORS};
    int count = sizeof classes / sizeof *classes;
    for (int i = 0; i < count; i++)
        if (classes[i] == class) return (uint32_t)i + 1;
    return CRDEBUG_OTHER_ERROR;
}

uint32_t *word_at(struct crdebug_record *record, unsigned k) {
    return (uint32_t *)(record + 1) + 1 + k;
}

uint32_t word_of(const struct crdebug_record *record, unsigned k) {
    return k + 1 < 4 * followers(record) ? ((const uint32_t *)(record + 1))[1 + k] : 0;
}

void note_large(struct note *note, uint64_t bytes, uint32_t peer, uint32_t tag) {
    note->few[0] = (uint32_t)bytes;
    note->few[1] = (uint32_t)(bytes >> 32);
    note->few[2] = peer;
    note->few[3] = tag;
    note->count = 4;
}

/* ---- repeating ---------------------------------------------------------------------------------- */

static void caught_up(void) {
    C.replaying = 0;
    if (deferred) requests_caught_up();
}

static bool in_a_run(void) {
    return C.repeat && HEAD_SIZE(record_at(C.cursor - 1)->head) != C.repeat;
}

/* crdebug has cut the log here, and set all of its header but for what stands in the way. */
static bool cut_from_outside(void) {
    const struct crdebug_record *last = record_at(C.cursor);
    if (in_a_run() || C.cursor + 1 != log_header->tail) return false;
    if (last->head != CRDEBUG_CUT_HEAD || last->body != CRDEBUG_CUT_BODY) return false;
    log_header->tail = C.cursor;
    caught_up();
    requests_unsettle();
    return true;
}

/* Seen for the first time: we are not where we were. */
void went_back(void) {
    if (cut_from_outside() || C.replaying) return;
    times_back++;
    if (watched) requests_went_back();
    C.replaying = 1;
}

static void cut(void) {
    if (C.repeat) {
        struct crdebug_record *run = record_at(C.cursor - 1);
        run->head = (uint32_t)run->head | C.repeat << SIZE_SHIFT;
    }
    log_header->tail = C.cursor;
    log_header->refused = CRDEBUG_NOT_REFUSED;
    log_header->cuts++;
    caught_up();
    log_header->tail_now = (C.now - 1) & ~UINT64_C(1);
    requests_unsettle();
}

/* What a started receive left open, and that it is done, the record has been told since. */
static uint32_t open_bits(const struct note *note, uint32_t k) {
    const uint32_t *slot = words_of(note) + k / CRDEBUG_SLOT * CRDEBUG_SLOT;
    if (HEAD_CALL(note->head) != CALL_Startall) return 0;
    uint32_t peer = slot[CRDEBUG_SLOT_PEER];
    if (!(peer & CRDEBUG_SLOT_FLAGS(CRDEBUG_PACKED))) return 0;
    if (k % CRDEBUG_SLOT == CRDEBUG_SLOT_TAG)
        return peer & CRDEBUG_SLOT_FLAGS(CRDEBUG_WILD_TAG) ? UINT32_MAX : 0;
    if (k % CRDEBUG_SLOT != CRDEBUG_SLOT_PEER) return 0;
    return CRDEBUG_SLOT_DONE | CRDEBUG_SLOT_CANCELLED |
           (peer & CRDEBUG_SLOT_FLAGS(CRDEBUG_WILD_SOURCE) ? PEER_MOST : 0);
}

/* Which of a call's words is the first that is not the recorded one; `none` if all are. */
static uint32_t other_word(const struct crdebug_record *record, const struct note *note,
                           uint32_t none) {
    for (uint32_t k = 0; k < note->count && k < FEW; k++)
        if ((word_of(record, k) ^ words_of(note)[k]) & ~open_bits(note, k)) return k;
    return none;
}

static bool same_words(const struct crdebug_record *record, const struct note *note) {
    return other_word(record, note, FEW) == FEW;
}

static void diverge(const struct crdebug_record *wanted, const struct note *note) {
    volatile struct crdebug_clock *clock = &crdebug_own;
    unsigned patience = 0;
    C.words_from = other_word(wanted, note, 0) & ~3u;
    for (uint32_t k = 0; k < 4; k++) {
        C.expected_words[k] = word_of(wanted, C.words_from + k);
        C.actual_words[k] = C.words_from + k < note->count ? words_of(note)[C.words_from + k] : 0;
    }
    C.expected = *wanted;
    C.actual = (struct crdebug_record){note->head, note->body};
    C.expected_failed = (uint16_t)failed_of(wanted);
    C.actual_failed = (uint16_t)note->failed;
    C.diverged_now = C.now;
    C.diverged = 1;
    clock->held = CRDEBUG_AT_DIVERGENCE;
    while (clock->diverged) progress(&patience);
    clock->held = CRDEBUG_FREE;
    cut();
}

const struct crdebug_record *expected_slow(void) {
    if (UNLIKELY(C.enforce != CRDEBUG_ENFORCE)) {
        if (C.enforce == CRDEBUG_BRANCH) C.enforce = CRDEBUG_ENFORCE;
        cut();
        return NULL;
    }
    if (UNLIKELY(C.cursor - (C.repeat != 0) < first_place())) { /* brought back from before that */
        C.refused = CRDEBUG_GIVEN_UP;
        C.mode = CRDEBUG_COUNTS;
        return NULL;
    }
    went_back();
    if (!behind()) return NULL;
    return record_at(in_a_run() ? C.cursor - 1 : C.cursor);
}

bool says_no(const struct crdebug_record *record) { return record->head & FLAG(CRDEBUG_NO); }

#define SAME_HEAD \
    (0x1ff | FLAG(CRDEBUG_WILD_SOURCE | CRDEBUG_WILD_TAG | CRDEBUG_PACKED) | \
     ~UINT64_C(0) << SIZE_SHIFT)
#define TAG_BITS ((uint64_t)TAG_MOST)
#define PEER_BITS ((uint64_t)PEER_MOST << 28)

/* Where the call leaves the sender or the tag open, the record has what it was. */
static bool same(const struct crdebug_record *record, uint64_t head, uint64_t body) {
    uint64_t bits = ~UINT64_C(0);
    if ((record->head ^ head) & SAME_HEAD) return false;
    if (head & FLAG(CRDEBUG_WILD_SOURCE) && BODY_PEER(body) == PEER_ANY) bits &= ~PEER_BITS;
    if (head & FLAG(CRDEBUG_WILD_TAG) && BODY_TAG(body) == TAG_ANY) bits &= ~TAG_BITS;
    if (head & FLAG(CRDEBUG_WILD_SOURCE) && BODY_PEER(record->body) == PEER_ANY) bits &= ~PEER_BITS;
    if (head & FLAG(CRDEBUG_WILD_TAG) && BODY_TAG(record->body) == TAG_ANY) bits &= ~TAG_BITS;
    return ((record->body ^ body) & bits) == 0;
}

const struct crdebug_record *begin_slow(const struct note *note) {
    const struct crdebug_record *record = expected();
    if (record == NULL) return NULL;
    if (same(record, note->head, note->body) && !says_no(record) && same_words(record, note))
        return record;
    diverge(record, note);
    return NULL;
}

uint64_t finish_slow(struct note *note) {
    const struct crdebug_record *record = expected();
    if (record == NULL) return append(note);
    bool equal = !says_no(record) &&
                 (HEAD_CALL(note->head) == CALL_Wtime ? HEAD_CALL(record->head) == CALL_Wtime
                                                      : same(record, note->head, note->body));
    if (!equal || !same_words(record, note) || failed_of(record) != note->failed) {
        diverge(record, note);
        return append(note);
    }
    uint64_t place = C.cursor;
    C.repeat = 0;
    C.cursor = place + 1 + followers(record);
    if (!behind()) caught_up();
    return place;
}

/* ---- recording ---------------------------------------------------------------------------------- */

/* Between looking at a word of the log and replacing it a rank may be saved, and brought back when the log
 * has become longer: then the word stays. No other thread writes it, so there is no need for a lock. */
static void replace(volatile uint64_t *word, uint64_t seen, uint64_t by) {
    __asm__ volatile("cmpxchg %2, %0" : "+m"(*word), "+a"(seen) : "r"(by) : "memory", "cc");
}

static uint32_t more_of(const struct note *note) {
    return note->count || UNLIKELY(note->failed) ? (1 + note->count + 3) / 4 : 0;
}

/* What comes before a record is written. It may take long, and a rank may be brought back there: whether
 * it is at the log's end is to be looked at afterwards. */
static bool make_room(const struct note *note) {
    if (UNLIKELY(C.mode == CRDEBUG_COUNTS)) return false;
    if (UNLIKELY(unsettled)) requests_sweep(16);
    uint64_t end = C.cursor + 1 + more_of(note);
    return LIKELY(end <= log_header->room) || log_room(end);
}

static uint64_t write_record(const struct note *note) {
    uint64_t place = C.cursor, ended = log_header->tail_now;
    uint32_t more = more_of(note);
    struct crdebug_record *record = record_at(place);
    record->head = note->head | (more ? FLAG(CRDEBUG_MORE) : 0) |
                   (uint64_t)site_number(note->site) << SITE_SHIFT;
    record->body = note->body;
    if (more) {
        uint32_t *words = (uint32_t *)(record + 1);
        memset(words, 0, more * sizeof *record);
        words[0] = more | note->failed << CRDEBUG_FAILED_SHIFT;
        if (note->count) memcpy(words + 1, words_of(note), note->count * sizeof *words);
    }
    C.repeat = 0;
    C.cursor = place + 1 + more;
    /* The definition of a communicator takes no tick. Who sees the tail, sees what is before it. */
    if (HEAD_CALL(note->head) != CALL_none) replace(&log_header->tail_now, ended, C.now + 1);
    replace(&log_header->tail, place, C.cursor);
    return place;
}

uint64_t append(struct note *note) {
    if (!make_room(note)) return NOBODY;
    return UNLIKELY(behind()) ? finish_slow(note) : write_record(note);
}

void finish_no(struct note *note) {
    const uint64_t least = 0x1ff | FLAG(CRDEBUG_NO);
    if (C.mode == CRDEBUG_COUNTS) return;
    note->head = (uint32_t)note->head | FLAG(CRDEBUG_NO);
    const struct crdebug_record *record = expected();
    if (record != NULL) {
        if ((record->head ^ note->head) & least || record->body != note->body) {
            diverge(record, note);
        } else {
            if (record == record_at(C.cursor)) {
                C.cursor++;
                C.repeat = 0;
            }
            C.repeat++;
            if (!behind()) caught_up();
            return;
        }
    }
    if (C.repeat) {
        struct crdebug_record *run = record_at(C.cursor - 1);
        uint64_t ended = log_header->tail_now, counted = run->head;
        uint64_t head = note->head | (uint64_t)site_number(note->site) << SITE_SHIFT;
        if ((uint32_t)counted == (uint32_t)head && run->body == note->body &&
            C.repeat < SIZE_MOST - 1) {
            replace(&run->head, counted, counted + (UINT64_C(1) << SIZE_SHIFT));
            C.repeat++;
            replace(&log_header->tail_now, ended, C.now + 1);
            return;
        }
    }
    if (!make_room(note)) return;
    if (UNLIKELY(behind())) {
        finish_no(note);
        return;
    }
    note->head |= UINT64_C(1) << SIZE_SHIFT;
    write_record(note);
    C.repeat = 1;
}
