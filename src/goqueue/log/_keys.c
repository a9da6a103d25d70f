/* The last offset of each key, for compaction: a table of 128-bit hashes, 24 bytes an entry.
 *
 * SipHash-2-4 under a seed that nobody outside knows: two keys of a billion collide with a chance of about 1 in 10^20, and
 * nobody can look for two that do. Lookups miss the processor's caches, so the records of a batch are hashed first and
 * their entries fetched ahead. The interpreter's lock is let go meanwhile; a map in use refuses a second user.
 *
 * Optional: `keys.py` holds the same in Python.
 */
#include "_keys.h"

#include <string.h>

#include "_records.h"

#define EMPTY (-1) /* no offset is negative */
#define SLOTS_MIN 1024
#define LANE_COUNT 32 /* entries fetched ahead */

typedef struct {
    uint64_t low, high;
    int64_t offset;
} Entry;

typedef struct {
    PyObject_HEAD
    uint64_t seed_low, seed_high;
    Entry *entries;
    size_t mask, count; /* the number of slots is mask + 1, a power of two */
    int is_busy;
} KeyMap;

/* ---------------------------------------------------------------- hashing */

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define ROUND(v0, v1, v2, v3)                                   \
    do {                                                        \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32); \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2;                \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0;                \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32); \
    } while (0)

static inline uint64_t read_little(const uint8_t *at, size_t size) {
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) word |= (uint64_t)at[i] << (8 * i);
    return word;
}

static inline uint64_t read_word(const uint8_t *at) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
#else
    return read_little(at, 8);
#endif
}

static inline Entry hash_key(const KeyMap *map, const uint8_t *key, size_t size) {
    uint64_t v0 = 0x736f6d6570736575ULL ^ map->seed_low, v1 = 0x646f72616e646f6dULL ^ map->seed_high ^ 0xee;
    uint64_t v2 = 0x6c7967656e657261ULL ^ map->seed_low, v3 = 0x7465646279746573ULL ^ map->seed_high;
    size_t left = size;
    for (; left >= 8; key += 8, left -= 8) {
        uint64_t word = read_word(key);
        v3 ^= word;
        ROUND(v0, v1, v2, v3);
        ROUND(v0, v1, v2, v3);
        v0 ^= word;
    }
    uint64_t last = read_little(key, left) | (uint64_t)size << 56;
    v3 ^= last;
    ROUND(v0, v1, v2, v3);
    ROUND(v0, v1, v2, v3);
    v0 ^= last;
    v2 ^= 0xee;
    for (int i = 0; i < 4; i++) ROUND(v0, v1, v2, v3);
    Entry entry = {v0 ^ v1 ^ v2 ^ v3, 0, EMPTY};
    v1 ^= 0xdd;
    for (int i = 0; i < 4; i++) ROUND(v0, v1, v2, v3);
    entry.high = v0 ^ v1 ^ v2 ^ v3;
    return entry;
}

/* ---------------------------------------------------------------- the table */

static inline Entry *find(const KeyMap *map, const Entry *wanted) {
    size_t at = wanted->low & map->mask;
    while (map->entries[at].offset != EMPTY &&
           (map->entries[at].low != wanted->low || map->entries[at].high != wanted->high))
        at = (at + 1) & map->mask;
    return &map->entries[at];
}

static Entry *empty_entries(size_t slot_count) {
    Entry *entries = PyMem_RawMalloc(slot_count * sizeof(Entry));
    if (entries) memset(entries, 0xff, slot_count * sizeof(Entry)); /* EMPTY throughout */
    return entries;
}

static int grow(KeyMap *map) {
    Entry *before = map->entries;
    size_t slot_count = map->mask + 1;
    Entry *after = empty_entries(2 * slot_count);
    if (!after) return 0;
    map->entries = after;
    map->mask = 2 * slot_count - 1;
    for (size_t i = 0; i < slot_count; i++)
        if (before[i].offset != EMPTY) *find(map, &before[i]) = before[i];
    PyMem_RawFree(before);
    return 1;
}

static int put_all(KeyMap *map, const Entry *lanes, int count) {
    if (4 * (map->count + count) > 3 * (map->mask + 1) && !grow(map)) return 0;
    for (int i = 0; i < count; i++) {
        Entry *entry = find(map, &lanes[i]);
        map->count += entry->offset == EMPTY;
        *entry = lanes[i];
    }
    return 1;
}

/* ---------------------------------------------------------------- a batch */

/* The records of a batch, and where the reading of them failed. */
typedef struct {
    Py_buffer data;
    Py_ssize_t start, count;
    long long last, base;
    const char *wrong;
    Py_ssize_t wrong_at;
    int is_out_of_memory;
} Batch;

static inline Cursor payload_of(const Batch *batch) {
    const uint8_t *bytes = batch->data.buf;
    return (Cursor){bytes + batch->start, bytes + batch->data.len};
}

static void note_records(KeyMap *map, Batch *batch) {
    Cursor payload = payload_of(batch);
    Entry lanes[LANE_COUNT];
    Record record;
    int64_t previous = -1;
    int lane_count = 0;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        batch->wrong = read_record(&payload, previous, batch->last, &record);
        if (batch->wrong) {
            batch->wrong_at = i;
            return;
        }
        previous = record.offset_delta;
        if (record.key_length < 0) continue;
        Entry entry = hash_key(map, record.key, (size_t)record.key_length);
        entry.offset = batch->base + record.offset_delta;
        __builtin_prefetch(&map->entries[entry.low & map->mask], 1);
        lanes[lane_count++] = entry;
        if (lane_count == LANE_COUNT) {
            if (!put_all(map, lanes, lane_count)) batch->is_out_of_memory = 1;
            if (batch->is_out_of_memory) return;
            lane_count = 0;
        }
    }
    if (!put_all(map, lanes, lane_count)) batch->is_out_of_memory = 1;
    if (payload.at != payload.end) batch->wrong_at = -1, batch->wrong = "";
}

/* What stays of a batch. With a horizon the base timestamp becomes that moment and the deltas change. */
typedef struct {
    int drops_tombstones, has_tombstone, is_shifted;
    long long base_timestamp, horizon;
    uint8_t *is_kept;
    Entry *hashes;
    uint8_t *out;
    size_t size, kept_count;
} Picked;

enum { DROPPED, KEPT, ASKED }; /* ASKED: a record with a key, kept unless a later one has it */

static int look_at(KeyMap *map, Batch *batch, Picked *picked) {
    Cursor payload = payload_of(batch);
    Record record;
    int64_t previous = -1;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        batch->wrong = read_record(&payload, previous, batch->last, &record);
        if (batch->wrong) {
            batch->wrong_at = i;
            return 0;
        }
        previous = record.offset_delta;
        picked->is_kept[i] = KEPT;
        if (record.key_length < 0) continue;
        int is_tombstone = record.value_length < 0;
        picked->has_tombstone |= is_tombstone;
        picked->is_kept[i] = is_tombstone && picked->drops_tombstones ? DROPPED : ASKED;
        picked->hashes[i] = hash_key(map, record.key, (size_t)record.key_length);
        picked->hashes[i].offset = batch->base + record.offset_delta;
        __builtin_prefetch(&map->entries[picked->hashes[i].low & map->mask]);
    }
    if (payload.at != payload.end) batch->wrong_at = -1, batch->wrong = "";
    return !batch->wrong;
}

static inline uint8_t *write_varint(uint8_t *at, int64_t value) {
    uint64_t raw = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; raw > 127; raw >>= 7) *at++ = (uint8_t)(raw | 128);
    *at++ = (uint8_t)raw;
    return at;
}

/* The record from `start` to `end` with another timestamp delta. */
static uint8_t *write_shifted(uint8_t *out, const Picked *picked, const uint8_t *start, const uint8_t *end) {
    Cursor cursor = {start, end};
    int64_t length = 0, delta = 0;
    read_varint(&cursor, &length); /* checked by look_at */
    uint8_t attributes = *cursor.at++;
    read_varint(&cursor, &delta);
    __int128 shifted = (__int128)delta + picked->base_timestamp - picked->horizon;
    if (shifted > INT64_MAX) shifted = INT64_MAX;
    if (shifted < INT64_MIN) shifted = INT64_MIN;
    uint8_t encoded[10];
    size_t encoded_size = (size_t)(write_varint(encoded, (int64_t)shifted) - encoded), rest = (size_t)(end - cursor.at);
    out = write_varint(out, (int64_t)(1 + encoded_size + rest));
    *out++ = attributes;
    memcpy(out, encoded, encoded_size);
    memcpy(out + encoded_size, cursor.at, rest);
    return out + encoded_size + rest;
}

static void copy_kept(Batch *batch, Picked *picked) {
    Cursor payload = payload_of(batch);
    Record record;
    uint8_t *out = picked->out;
    int64_t previous = -1;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        const uint8_t *start = payload.at;
        read_record(&payload, previous, batch->last, &record);
        previous = record.offset_delta;
        if (!picked->is_kept[i]) continue;
        if (picked->is_shifted) {
            out = write_shifted(out, picked, start, payload.at);
        } else {
            memcpy(out, start, (size_t)(payload.at - start));
            out += payload.at - start;
        }
    }
    picked->size = (size_t)(out - picked->out);
}

static void pick_records(KeyMap *map, Batch *batch, Picked *picked) {
    if (!look_at(map, batch, picked)) return;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        if (picked->is_kept[i] == ASKED)
            picked->is_kept[i] = find(map, &picked->hashes[i])->offset <= picked->hashes[i].offset ? KEPT : DROPPED;
        picked->kept_count += picked->is_kept[i];
    }
    picked->is_shifted = picked->is_shifted && picked->has_tombstone;
    if (!picked->kept_count || (picked->kept_count == (size_t)batch->count && !picked->is_shifted)) return;
    /* A delta takes ten bytes at most, and so may lengthen the length. */
    size_t most = (size_t)batch->data.len + (picked->is_shifted ? 20 * picked->kept_count : 0);
    picked->out = PyMem_RawMalloc(most);
    if (!picked->out) batch->is_out_of_memory = 1;
    else copy_kept(batch, picked);
}

/* ---------------------------------------------------------------- the type */

/* A record has at least seven bytes: room for more than there can be is not asked for. */
static size_t room_for(const Batch *batch) {
    Py_ssize_t most = (batch->data.len - batch->start) / 7;
    return (size_t)(batch->count < most ? batch->count : most) + 1;
}

static int is_usable(KeyMap *map, Batch *batch) {
    if (batch->count < 0) batch->count = 0;
    if (map->is_busy) PyErr_SetString(PyExc_RuntimeError, "the map is in use by another thread");
    else if (batch->start < 0 || batch->start > batch->data.len)
        PyErr_SetString(PyExc_ValueError, "the batch has no payload");
    else return 1;
    return 0;
}

static int has_failed(const Batch *batch) {
    if (batch->is_out_of_memory) PyErr_NoMemory();
    else if (batch->wrong && batch->wrong_at >= 0) refuse(batch->wrong_at, batch->wrong);
    else if (batch->wrong) refuse_rest(batch->count);
    else return 0;
    return 1;
}

static PyObject *note(KeyMap *map, PyObject *args) {
    Batch batch = {0};
    if (!PyArg_ParseTuple(args, "y*nnLL", &batch.data, &batch.start, &batch.count, &batch.last, &batch.base)) return NULL;
    PyObject *result = NULL;
    if (is_usable(map, &batch)) {
        map->is_busy = 1;
        Py_BEGIN_ALLOW_THREADS
        note_records(map, &batch);
        Py_END_ALLOW_THREADS
        map->is_busy = 0;
        if (!has_failed(&batch)) result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&batch.data);
    return result;
}

static PyObject *pick(KeyMap *map, PyObject *args) {
    Batch batch = {0};
    Picked picked = {0};
    PyObject *horizon;
    if (!PyArg_ParseTuple(args, "y*nnLLpLO", &batch.data, &batch.start, &batch.count, &batch.last, &batch.base,
                          &picked.drops_tombstones, &picked.base_timestamp, &horizon))
        return NULL;
    PyObject *result = NULL;
    if (!is_usable(map, &batch)) goto done;
    picked.is_shifted = horizon != Py_None;
    if (picked.is_shifted) picked.horizon = PyLong_AsLongLong(horizon);
    if (PyErr_Occurred()) goto done;
    map->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS
    picked.is_kept = PyMem_RawMalloc(room_for(&batch));
    picked.hashes = PyMem_RawMalloc(room_for(&batch) * sizeof(Entry));
    if (picked.is_kept && picked.hashes) pick_records(map, &batch, &picked);
    else batch.is_out_of_memory = 1;
    Py_END_ALLOW_THREADS
    map->is_busy = 0;
    if (!has_failed(&batch)) {
        PyObject *has_tombstone = picked.has_tombstone ? Py_True : Py_False;
        int is_whole = picked.kept_count == (size_t)batch.count && !picked.is_shifted;
        if (is_whole) result = Py_BuildValue("nOO", (Py_ssize_t)picked.kept_count, has_tombstone, Py_None);
        else
            result = Py_BuildValue("nOy#", (Py_ssize_t)picked.kept_count, has_tombstone,
                                   picked.out ? (const char *)picked.out : "", (Py_ssize_t)picked.size);
    }
    PyMem_RawFree(picked.is_kept);
    PyMem_RawFree(picked.hashes);
    PyMem_RawFree(picked.out);
done:
    PyBuffer_Release(&batch.data);
    return result;
}

static PyObject *digest(KeyMap *map, PyObject *args) {
    Py_buffer key;
    if (!PyArg_ParseTuple(args, "y*", &key)) return NULL;
    Entry entry = hash_key(map, key.buf, (size_t)key.len);
    PyBuffer_Release(&key);
    uint8_t out[16];
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(entry.low >> (8 * i));
        out[8 + i] = (uint8_t)(entry.high >> (8 * i));
    }
    return PyBytes_FromStringAndSize((const char *)out, 16);
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    Py_buffer seed;
    if (!PyArg_ParseTuple(args, "y*", &seed)) return NULL;
    if (seed.len != 16) {
        PyErr_SetString(PyExc_ValueError, "a seed has 16 bytes");
        PyBuffer_Release(&seed);
        return NULL;
    }
    KeyMap *map = (KeyMap *)type->tp_alloc(type, 0);
    if (map) {
        map->seed_low = read_little(seed.buf, 8);
        map->seed_high = read_little((const uint8_t *)seed.buf + 8, 8);
        map->mask = SLOTS_MIN - 1;
        map->entries = empty_entries(SLOTS_MIN);
        if (!map->entries) {
            Py_CLEAR(map);
            PyErr_NoMemory();
        }
    }
    PyBuffer_Release(&seed);
    return (PyObject *)map;
}

static void destroy(KeyMap *map) {
    PyTypeObject *type = Py_TYPE(map);
    PyMem_RawFree(map->entries);
    type->tp_free((PyObject *)map);
    Py_DECREF(type);
}

static Py_ssize_t length(KeyMap *map) { return (Py_ssize_t)map->count; }

static PyMethodDef methods[] = {
    {"note", (PyCFunction)note, METH_VARARGS,
     "note(data, start, count, last_offset_delta, base_offset): the records of a batch that counts"},
    {"pick", (PyCFunction)pick, METH_VARARGS,
     "pick(data, start, count, last_offset_delta, base_offset, drops_tombstones, base_timestamp, horizon) -> "
     "(kept count, whether there is a tombstone, what stays or None if that is all of it)"},
    {"digest", (PyCFunction)digest, METH_VARARGS, "digest(key) -> 16 bytes"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The last offset of each key."},
    {Py_tp_new, create},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {Py_mp_length, length},
    {Py_sq_length, length},
    {0, NULL},
};

PyType_Spec key_map_spec = {"goqueue.log._kernel.KeyMap", sizeof(KeyMap), 0, Py_TPFLAGS_DEFAULT, slots};
