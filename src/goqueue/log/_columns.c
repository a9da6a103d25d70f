/* Records to columns: the payloads of many batches, gathered into the buffers of Arrow's columns.
 *
 * Optional, as _kernel is: `columns.py` holds the same in Python. A property test proves that the twins give the same
 * buffers and the same refusals. Nothing is read outside of the payload; where a record is wrong, nothing of its
 * payload stays.
 */
#include "_columns.h"

#include <stdint.h>
#include <string.h>

#include "_records.h"

#define GATHER_BYTES_MAX ((Py_ssize_t)1 << 29) /* names may grow threefold, and offsets are 32 bits with a sign */
#define RECORD_BYTES_MIN 7
#define MILLISECONDS_MAX (INT64_MAX / 1000)
#define NORMAL 2

enum {
    KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS, PRIORITY, DELIVER_AT, TRACEPARENT, SCHEMA_ID,
    COLUMN_COUNT
};

static const char *const column_names[COLUMN_COUNT] = {
    "key",      "value",      "offset",      "timestamp", "timestampType", "headers",
    "priority", "deliver_at", "traceparent", "schema_id",
};

/* Memory that Python owns, so that what was gathered is handed over without a copy. */
typedef struct {
    PyObject *owner; /* a bytearray, or NULL */
    uint8_t *at;
    Py_ssize_t room;
    Py_ssize_t hint; /* how much was needed the last time */
} Store;

/* A set bit for each value that is not null; bits beyond the last are set, too. */
typedef struct {
    Store bits;
    Py_ssize_t null_count;
} Validity;

typedef struct {
    Validity validity;
    Store ends, data;
} Blocks;

typedef struct {
    PyObject_HEAD
    PyObject *parse; /* bytes of gq-deliver-at -> microseconds or None, for what is not plain digits */
    Py_ssize_t bytes_max, size_bytes, rows, header_count;
    int is_busy;
    uint8_t wanted[COLUMN_COUNT];
    int wants_headers; /* any column that is made of them */
    Blocks key, value, trace, header_name, header_value;
    Store offset, timestamp, timestamp_type, list_ends, priority, due, schema;
    Validity list_validity, due_validity, schema_validity;
} Gatherer;

/* ---------------------------------------------------------------- memory */

static int ensure(Store *store, Py_ssize_t needed) {
    if (needed <= store->room) return 1;
    Py_ssize_t room = store->room ? 2 * store->room : store->hint + store->hint / 8 + 256;
    if (room < needed) room = needed;
    if (!store->owner) {
        store->owner = PyByteArray_FromStringAndSize(NULL, room);
        if (!store->owner) return 0;
    } else if (PyByteArray_Resize(store->owner, room) < 0) {
        return 0;
    }
    store->at = (uint8_t *)PyByteArray_AS_STRING(store->owner);
    store->room = room;
    return 1;
}

static PyObject *hand_over(Store *store, Py_ssize_t used) {
    PyObject *owner = store->owner;
    if (!owner) return PyByteArray_FromStringAndSize(NULL, 0);
    store->owner = NULL;
    store->at = NULL;
    store->room = 0;
    store->hint = used;
    if (PyByteArray_Resize(owner, used) < 0) Py_CLEAR(owner);
    return owner;
}

static void drop(Store *store) {
    Py_CLEAR(store->owner);
    store->at = NULL;
    store->room = 0;
}

static int ensure_bits(Validity *validity, Py_ssize_t count) {
    Py_ssize_t room = validity->bits.room;
    if (!ensure(&validity->bits, (count + 7) / 8)) return 0;
    if (validity->bits.room > room) memset(validity->bits.at + room, 0xff, (size_t)(validity->bits.room - room));
    return 1;
}

static inline void set_null(Validity *validity, Py_ssize_t at) {
    validity->bits.at[at >> 3] &= (uint8_t)~(1u << (at & 7));
    validity->null_count++;
}

/* After a refusal: what was noted of rows from `count` on is forgotten. */
static void forget_nulls(Validity *validity, Py_ssize_t count) {
    Py_ssize_t nulls = 0;
    for (Py_ssize_t at = 0; at < validity->bits.room; at++) {
        if (at > count >> 3) validity->bits.at[at] = 0xff;
        if (at == count >> 3) validity->bits.at[at] |= (uint8_t)(0xffu << (count & 7));
        for (int bit = 0; bit < 8; bit++) nulls += !(validity->bits.at[at] >> bit & 1);
    }
    validity->null_count = nulls;
}

static PyObject *hand_over_bits(Validity *validity, Py_ssize_t count) {
    Py_ssize_t nulls = validity->null_count;
    validity->null_count = 0;
    if (!nulls) {
        drop(&validity->bits);
        return Py_NewRef(Py_None);
    }
    if (count & 7) validity->bits.at[count >> 3] &= (uint8_t)((1u << (count & 7)) - 1);
    return hand_over(&validity->bits, (count + 7) / 8);
}

static inline int32_t *ends_of(Blocks *blocks) { return (int32_t *)blocks->ends.at; }

static int ensure_ends(Store *ends, Py_ssize_t count) {
    int is_new = !ends->owner;
    if (!ensure(ends, (count + 1) * 4)) return 0;
    if (is_new) *(int32_t *)ends->at = 0;
    return 1;
}

static int ensure_blocks(Blocks *blocks, Py_ssize_t count) {
    return ensure_ends(&blocks->ends, count) && ensure_bits(&blocks->validity, count);
}

/* Needs room for one more (ensure_blocks). A length of -1 is null. */
static inline int append(Blocks *blocks, Py_ssize_t at, const uint8_t *block, int64_t length) {
    int32_t *ends = ends_of(blocks);
    int32_t end = ends[at];
    if (length < 0) {
        set_null(&blocks->validity, at);
    } else if (length > 0) {
        if (!ensure(&blocks->data, end + (Py_ssize_t)length)) return 0;
        memcpy(blocks->data.at + end, block, (size_t)length);
        end += (int32_t)length;
    }
    ends[at + 1] = end;
    return 1;
}

static int is_ascii(const uint8_t *block, int64_t length) {
    uint8_t seen = 0;
    for (int64_t i = 0; i < length; i++) seen |= block[i];
    return seen < 128;
}

/* Text: what is no UTF-8 is replaced just as Python does it. */
static int append_text(Blocks *blocks, Py_ssize_t at, const uint8_t *block, int64_t length) {
    if (length <= 0 || is_ascii(block, length)) return append(blocks, at, block, length);
    PyObject *text = PyUnicode_DecodeUTF8((const char *)block, (Py_ssize_t)length, "replace");
    if (!text) return 0;
    Py_ssize_t size;
    const char *encoded = PyUnicode_AsUTF8AndSize(text, &size);
    int is_done = encoded && append(blocks, at, (const uint8_t *)encoded, size);
    Py_DECREF(text);
    return is_done;
}

static PyObject *hand_over_blocks(Blocks *blocks, Py_ssize_t count) {
    if (!ensure_blocks(blocks, count)) return NULL;
    Py_ssize_t size = ends_of(blocks)[count];
    PyObject *validity = hand_over_bits(&blocks->validity, count);
    PyObject *ends = hand_over(&blocks->ends, (count + 1) * 4);
    PyObject *data = hand_over(&blocks->data, size);
    return Py_BuildValue("NNN", validity, ends, data);
}

/* ---------------------------------------------------------------- one record */

static int is_space(uint8_t byte) { return byte == ' ' || (byte >= 9 && byte <= 13) || (byte >= 28 && byte <= 31); }

static void strip(const uint8_t **block, int64_t *length) {
    while (*length > 0 && is_space((*block)[*length - 1])) --*length;
    while (*length > 0 && is_space(**block)) ++*block, --*length;
}

/* As lane_of in model/priority.py. */
static int8_t lane_of(const uint8_t *block, int64_t length) {
    static const char *const lanes[] = {"critical", "high", "normal", "low", "background"};
    strip(&block, &length);
    if (length == 1 && *block >= '0' && *block <= '4') return (int8_t)(*block - '0');
    for (int lane = 0; lane < 5; lane++) {
        if (length != (int64_t)strlen(lanes[lane])) continue;
        int64_t same = 0;
        while (same < length && (block[same] | 32) == lanes[lane][same] && block[same] >= 'A') same++;
        if (same == length) return (int8_t)lane;
    }
    return NORMAL;
}

static int append_due(Gatherer *self, Py_ssize_t row, const uint8_t *block, int64_t length) {
    const uint8_t *digits = block;
    int64_t count = length, number = 0;
    strip(&digits, &count);
    int is_plain = count > 0 && count <= 15;
    for (int64_t i = 0; is_plain && i < count; i++) {
        is_plain = digits[i] >= '0' && digits[i] <= '9';
        number = number * 10 + (digits[i] - '0');
    }
    if (is_plain) {
        ((int64_t *)self->due.at)[row] = number * 1000;
        return 1;
    }
    if (length < 0) block = (const uint8_t *)"", length = 0;
    PyObject *parsed = PyObject_CallFunction(self->parse, "y#", (const char *)block, (Py_ssize_t)length);
    if (!parsed) return 0;
    number = 0;
    if (parsed == Py_None) {
        set_null(&self->due_validity, row);
    } else {
        number = PyLong_AsLongLong(parsed);
    }
    Py_DECREF(parsed);
    ((int64_t *)self->due.at)[row] = number;
    return !PyErr_Occurred();
}

static int is_named(const char *expected, int64_t expected_length, const uint8_t *name, int64_t length) {
    return length == expected_length && memcmp(name, expected, (size_t)length) == 0;
}
#define IS_NAMED(literal, name, length) is_named(literal, sizeof(literal) - 1, name, length)

/* The columns that are made of headers. The first of a name is the one that counts. */
static int append_headers(Gatherer *self, Py_ssize_t row, Py_ssize_t header_count, const Record *record) {
    Cursor cursor = record->headers;
    int has_lane = !self->wanted[PRIORITY];
    int has_due = !self->wanted[DELIVER_AT];
    int has_trace = !self->wanted[TRACEPARENT];
    const uint8_t *name = NULL, *value = NULL;
    int64_t name_length = 0, value_length = 0;
    if (!has_lane) ((int8_t *)self->priority.at)[row] = NORMAL;
    for (int64_t i = 0; i < record->header_count; i++) {
        read_block(&cursor, 0, &name, &name_length); /* checked by read_record */
        read_block(&cursor, -1, &value, &value_length);
        if (self->wanted[HEADERS]) {
            if (!append_text(&self->header_name, header_count, name, name_length)) return 0;
            if (!append(&self->header_value, header_count, value, value_length)) return 0;
            header_count++;
        }
        if (!has_lane && IS_NAMED("gq-priority", name, name_length)) {
            has_lane = 1;
            ((int8_t *)self->priority.at)[row] = value_length < 0 ? NORMAL : lane_of(value, value_length);
        } else if (!has_due && IS_NAMED("gq-deliver-at", name, name_length)) {
            has_due = 1;
            if (!append_due(self, row, value, value_length)) return 0;
        } else if (!has_trace && IS_NAMED("traceparent", name, name_length)) {
            has_trace = 1;
            if (!append_text(&self->trace, row, value, value_length)) return 0;
        }
    }
    if (!has_due) {
        ((int64_t *)self->due.at)[row] = 0;
        set_null(&self->due_validity, row);
    }
    return has_trace || append(&self->trace, row, NULL, -1);
}

static void append_schema(Gatherer *self, Py_ssize_t row, const Record *record) {
    uint32_t id = 0;
    if (record->value_length >= 5 && record->value[0] == 0) {
        for (int i = 1; i < 5; i++) id = id << 8 | record->value[i];
    } else {
        set_null(&self->schema_validity, row);
    }
    ((int32_t *)self->schema.at)[row] = (int32_t)id;
}

/* The nearest time that microseconds can say, of two numbers whose sum may not even fit 64 bits. */
static inline int64_t microseconds(int64_t base, int64_t delta) {
    int64_t sum;
    if (delta > 0 && base > INT64_MAX - delta)
        sum = INT64_MAX;
    else if (delta < 0 && base < INT64_MIN - delta)
        sum = INT64_MIN;
    else
        sum = base + delta;
    if (sum > MILLISECONDS_MAX) sum = MILLISECONDS_MAX;
    if (sum < -MILLISECONDS_MAX) sum = -MILLISECONDS_MAX;
    return sum * 1000;
}

/* ---------------------------------------------------------------- one payload */

typedef struct {
    Py_ssize_t count;
    long long last, base_offset, base_timestamp, append_timestamp, lower, upper;
    int is_stamped;
} Batch;

static int ensure_rows(Gatherer *self, Py_ssize_t count) {
    const uint8_t *wanted = self->wanted;
    return (!wanted[KEY] || ensure_blocks(&self->key, count)) &&
           (!wanted[VALUE] || ensure_blocks(&self->value, count)) &&
           (!wanted[OFFSET] || ensure(&self->offset, count * 8)) &&
           (!wanted[TIMESTAMP] || ensure(&self->timestamp, count * 8)) &&
           (!wanted[TIMESTAMP_TYPE] || ensure(&self->timestamp_type, count * 4)) &&
           (!wanted[HEADERS] || (ensure_ends(&self->list_ends, count) && ensure_bits(&self->list_validity, count))) &&
           (!wanted[PRIORITY] || ensure(&self->priority, count)) &&
           (!wanted[DELIVER_AT] || (ensure(&self->due, count * 8) && ensure_bits(&self->due_validity, count))) &&
           (!wanted[TRACEPARENT] || ensure_blocks(&self->trace, count)) &&
           (!wanted[SCHEMA_ID] || (ensure(&self->schema, count * 4) && ensure_bits(&self->schema_validity, count)));
}

static inline int append_record(Gatherer *self, Py_ssize_t row, Py_ssize_t *header_count, const Batch *batch,
                                const Record *record) {
    const uint8_t *wanted = self->wanted;
    if (wanted[KEY] && !append(&self->key, row, record->key, record->key_length)) return 0;
    if (wanted[VALUE] && !append(&self->value, row, record->value, record->value_length)) return 0;
    if (wanted[OFFSET]) ((int64_t *)self->offset.at)[row] = batch->base_offset + record->offset_delta;
    if (wanted[TIMESTAMP]) {
        int64_t base = batch->is_stamped ? batch->append_timestamp : batch->base_timestamp;
        int64_t delta = batch->is_stamped ? 0 : record->timestamp_delta;
        ((int64_t *)self->timestamp.at)[row] = microseconds(base, delta);
    }
    if (wanted[TIMESTAMP_TYPE]) ((int32_t *)self->timestamp_type.at)[row] = batch->is_stamped;
    if (wanted[SCHEMA_ID]) append_schema(self, row, record);
    if (!self->wants_headers) return 1;
    if (wanted[HEADERS]) {
        Py_ssize_t count = *header_count + (Py_ssize_t)record->header_count;
        if (!ensure_blocks(&self->header_name, count) || !ensure_blocks(&self->header_value, count)) return 0;
        ((int32_t *)self->list_ends.at)[row + 1] = (int32_t)count;
        if (!record->header_count) set_null(&self->list_validity, row);
    }
    if (!append_headers(self, row, *header_count, record)) return 0;
    *header_count += (Py_ssize_t)record->header_count;
    return 1;
}

/* How many rows there are then, or -1. */
static Py_ssize_t append_batch(Gatherer *self, Cursor payload, const Batch *batch) {
    Py_ssize_t room = (payload.end - payload.at) / RECORD_BYTES_MIN + 1; /* a count beyond it is found to be wrong */
    if (room > batch->count) room = batch->count > 0 ? batch->count : 0;
    if (!ensure_rows(self, self->rows + room)) return -1;
    Record record;
    Py_ssize_t row = self->rows, header_count = self->header_count;
    int64_t previous = -1;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        const char *wrong = read_record(&payload, previous, batch->last, &record);
        if (wrong) {
            refuse(i, wrong);
            return -1;
        }
        previous = record.offset_delta;
        int64_t offset = batch->base_offset + record.offset_delta;
        if (offset < batch->lower || offset >= batch->upper) continue;
        if (!append_record(self, row, &header_count, batch, &record)) return -1;
        row++;
    }
    if (payload.at != payload.end) {
        refuse_rest(batch->count);
        return -1;
    }
    self->header_count = header_count;
    return row;
}

static void forget(Gatherer *self) {
    Validity *of_rows[] = {&self->key.validity,   &self->value.validity, &self->trace.validity,
                           &self->list_validity, &self->due_validity,   &self->schema_validity};
    for (size_t i = 0; i < sizeof(of_rows) / sizeof(*of_rows); i++) forget_nulls(of_rows[i], self->rows);
    forget_nulls(&self->header_value.validity, self->header_count);
}

static int is_free(Gatherer *self) {
    if (self->is_busy) PyErr_SetString(PyExc_RuntimeError, "a gatherer does one thing at a time");
    return !self->is_busy;
}

static PyObject *gatherer_add(Gatherer *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start;
    Batch batch;
    PyObject *append_timestamp;
    if (!PyArg_ParseTuple(args, "y*nnLLLOLL", &data, &start, &batch.count, &batch.last, &batch.base_offset,
                          &batch.base_timestamp, &append_timestamp, &batch.lower, &batch.upper))
        return NULL;
    PyObject *result = NULL;
    batch.is_stamped = append_timestamp != Py_None;
    batch.append_timestamp = batch.is_stamped ? PyLong_AsLongLong(append_timestamp) : 0;
    if (PyErr_Occurred() || !is_free(self)) goto done;
    if (start < 0 || start > data.len) {
        PyErr_SetString(PyExc_ValueError, "the batch has no payload");
        goto done;
    }
    if (data.len - start > self->bytes_max - self->size_bytes) {
        PyErr_Format(PyExc_ValueError, "%zd bytes of records are more than the %zd of one gathering",
                     self->size_bytes + (data.len - start), self->bytes_max);
        goto done;
    }
    if (batch.base_offset < 0 || (batch.last > 0 && batch.base_offset > INT64_MAX - batch.last)) {
        PyErr_Format(PyExc_ValueError, "offsets from %lld to %lld behind it cannot be", batch.base_offset,
                     batch.last);
        goto done;
    }
    Cursor payload = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + data.len};
    self->is_busy = 1;
    Py_ssize_t rows = append_batch(self, payload, &batch);
    self->is_busy = 0;
    if (rows < 0) {
        forget(self);
        goto done;
    }
    result = PyLong_FromSsize_t(rows - self->rows);
    self->rows = rows;
    self->size_bytes += data.len - start;
done:
    PyBuffer_Release(&data);
    return result;
}

/* ---------------------------------------------------------------- many batches */

enum { HEADER_BYTES = 61, LENGTH_OVERHEAD = 12, CHECKED_FROM = 21, MAGIC = 2, LOG_APPEND_TIME = 0x08 };

static uint64_t big_endian(const uint8_t *at, int count) {
    uint64_t number = 0;
    for (int i = 0; i < count; i++) number = number << 8 | at[i];
    return number;
}

/* Of the 61 bytes before the records, what matters here (docs/format/record.md). */
typedef struct {
    Batch batch;
    Py_ssize_t size;
    uint32_t checksum;
    int attributes;
} Frame;

/* 0 where there is no whole batch, or its header cannot be. */
static int read_frame(Cursor rest, Frame *frame) {
    if (rest.end - rest.at < HEADER_BYTES) return 0;
    const uint8_t *at = rest.at;
    Batch *batch = &frame->batch;
    frame->size = (Py_ssize_t)(int32_t)big_endian(at + 8, 4) + LENGTH_OVERHEAD;
    frame->checksum = (uint32_t)big_endian(at + 17, 4);
    frame->attributes = (int)big_endian(at + 21, 2);
    batch->base_offset = (int64_t)big_endian(at, 8);
    batch->last = (int32_t)big_endian(at + 23, 4);
    batch->base_timestamp = (int64_t)big_endian(at + 27, 8);
    batch->append_timestamp = (int64_t)big_endian(at + 35, 8);
    batch->count = (int32_t)big_endian(at + 57, 4);
    batch->is_stamped = (frame->attributes & LOG_APPEND_TIME) != 0;
    return at[16] == MAGIC && frame->size >= HEADER_BYTES && frame->size <= rest.end - at && batch->base_offset >= 0 &&
           batch->last >= 0 && batch->base_offset < INT64_MAX - batch->last && batch->count >= 0 &&
           batch->count <= batch->last + 1;
}

/* 1: the checksum is right, or none is asked for; 0: it is not; -1: an error. */
static int is_sound(PyObject *crc, const uint8_t *at, const Frame *frame) {
    if (crc == Py_None) return 1;
    PyObject *view = PyMemoryView_FromMemory((char *)at + CHECKED_FROM, frame->size - CHECKED_FROM, PyBUF_READ);
    PyObject *found = view ? PyObject_CallOneArg(crc, view) : NULL;
    Py_XDECREF(view);
    if (!found) return -1;
    unsigned long long checksum = PyLong_AsUnsignedLongLong(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : checksum == frame->checksum;
}

typedef struct {
    long long lower, upper;
    Py_ssize_t rows_max, bytes_max;
    int left_bits;
    PyObject *crc;
} Run;

/* 1: the batch was taken, or has nothing of what is wanted; 0: it is left to the caller; -1: an error. */
static int take_batch(Gatherer *self, Cursor rest, Frame *frame, Run *run) {
    Batch *batch = &frame->batch;
    if (!read_frame(rest, frame) || frame->attributes & run->left_bits || batch->base_offset >= run->upper) return 0;
    long long end_offset = batch->base_offset + batch->last + 1;
    if (end_offset <= run->lower) return 1;
    Py_ssize_t size = frame->size - HEADER_BYTES;
    if (size > self->bytes_max - self->size_bytes) return 0;
    if (self->rows && (self->rows + batch->count > run->rows_max || self->size_bytes + frame->size > run->bytes_max))
        return 0;
    int sound = is_sound(run->crc, rest.at, frame);
    if (sound <= 0) return sound;
    if (batch->count) {
        batch->lower = run->lower;
        batch->upper = run->upper;
        Cursor payload = {rest.at + HEADER_BYTES, rest.at + frame->size};
        Py_ssize_t rows = append_batch(self, payload, batch);
        if (rows < 0) {
            forget(self);
            if (!PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
            PyErr_Clear(); /* the caller finds the same, and says it */
            return 0;
        }
        self->rows = rows;
        self->size_bytes += size;
    }
    run->lower = end_offset;
    return 1;
}

static PyObject *gatherer_add_run(Gatherer *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t position;
    Run run;
    if (!PyArg_ParseTuple(args, "y*nLLnniO", &data, &position, &run.lower, &run.upper, &run.rows_max, &run.bytes_max,
                          &run.left_bits, &run.crc))
        return NULL;
    PyObject *result = NULL;
    if (!is_free(self)) goto done;
    if (position < 0 || position > data.len) {
        PyErr_SetString(PyExc_ValueError, "the run begins outside of the bytes");
        goto done;
    }
    int taken = 1;
    self->is_busy = 1;
    while (taken > 0) {
        Frame frame;
        Cursor rest = {(const uint8_t *)data.buf + position, (const uint8_t *)data.buf + data.len};
        taken = take_batch(self, rest, &frame, &run);
        if (taken > 0) position += frame.size;
    }
    self->is_busy = 0;
    if (!taken) result = Py_BuildValue("nL", position, run.lower);
done:
    PyBuffer_Release(&data);
    return result;
}

/* ---------------------------------------------------------------- what was gathered */

static PyObject *take_headers(Gatherer *self) {
    if (!ensure_ends(&self->list_ends, self->rows)) return NULL;
    PyObject *validity = hand_over_bits(&self->list_validity, self->rows);
    PyObject *lists = hand_over(&self->list_ends, (self->rows + 1) * 4);
    PyObject *names = hand_over_blocks(&self->header_name, self->header_count);
    PyObject *values = hand_over_blocks(&self->header_value, self->header_count);
    PyObject *parts = NULL;
    if (validity && lists && names && values)
        parts = Py_BuildValue("OOOOOOO", validity, lists, PyTuple_GET_ITEM(names, 1), PyTuple_GET_ITEM(names, 2),
                              PyTuple_GET_ITEM(values, 0), PyTuple_GET_ITEM(values, 1), PyTuple_GET_ITEM(values, 2));
    Py_XDECREF(validity);
    Py_XDECREF(lists);
    Py_XDECREF(names);
    Py_XDECREF(values);
    return parts;
}

static PyObject *take_column(Gatherer *self, int column) {
    Py_ssize_t rows = self->rows;
    switch (column) {
    case KEY: return hand_over_blocks(&self->key, rows);
    case VALUE: return hand_over_blocks(&self->value, rows);
    case TRACEPARENT: return hand_over_blocks(&self->trace, rows);
    case HEADERS: return take_headers(self);
    case OFFSET: return Py_BuildValue("(N)", hand_over(&self->offset, rows * 8));
    case TIMESTAMP: return Py_BuildValue("(N)", hand_over(&self->timestamp, rows * 8));
    case TIMESTAMP_TYPE: return Py_BuildValue("(N)", hand_over(&self->timestamp_type, rows * 4));
    case PRIORITY: return Py_BuildValue("(N)", hand_over(&self->priority, rows));
    case DELIVER_AT:
        return Py_BuildValue("NN", hand_over_bits(&self->due_validity, rows), hand_over(&self->due, rows * 8));
    default:
        return Py_BuildValue("NN", hand_over_bits(&self->schema_validity, rows), hand_over(&self->schema, rows * 4));
    }
}

static PyObject *gatherer_take(Gatherer *self, PyObject *unused) {
    (void)unused;
    if (!is_free(self)) return NULL;
    PyObject *columns = PyDict_New();
    for (int i = 0; columns && i < COLUMN_COUNT; i++) {
        if (!self->wanted[i]) continue;
        PyObject *parts = take_column(self, i);
        if (!parts || PyDict_SetItemString(columns, column_names[i], parts) < 0) Py_CLEAR(columns);
        Py_XDECREF(parts);
    }
    Py_ssize_t rows = self->rows;
    self->rows = self->header_count = self->size_bytes = 0;
    return columns ? Py_BuildValue("nN", rows, columns) : NULL;
}

/* ---------------------------------------------------------------- the type */

static int column_of(PyObject *name) {
    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, column_names[i]) == 0) return i;
    }
    PyErr_Format(PyExc_ValueError, "records have no column %R", name);
    return -1;
}

static PyObject *gatherer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *names, *parse;
    Py_ssize_t bytes_max;
    if (keywords && PyDict_GET_SIZE(keywords)) return PyErr_Format(PyExc_TypeError, "a gatherer takes no keywords");
    if (!PyArg_ParseTuple(args, "O!nO", &PyTuple_Type, &names, &bytes_max, &parse)) return NULL;
    Gatherer *self = (Gatherer *)type->tp_alloc(type, 0); /* all of it is zero */
    if (!self) return NULL;
    self->parse = Py_NewRef(parse);
    self->bytes_max = bytes_max;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        int column = column_of(PyTuple_GET_ITEM(names, i));
        if (column < 0) goto fail;
        self->wanted[column] = 1;
    }
    if (bytes_max < 1 || bytes_max > GATHER_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd bytes cannot be gathered; it must be 1 to %zd", bytes_max,
                     GATHER_BYTES_MAX);
        goto fail;
    }
    self->wants_headers =
        self->wanted[HEADERS] || self->wanted[PRIORITY] || self->wanted[DELIVER_AT] || self->wanted[TRACEPARENT];
    return (PyObject *)self;
fail:
    Py_DECREF(self);
    return NULL;
}

static void gatherer_dealloc(Gatherer *self) {
    Blocks *blocks[] = {&self->key, &self->value, &self->trace, &self->header_name, &self->header_value};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
        drop(&blocks[i]->validity.bits);
        drop(&blocks[i]->ends);
        drop(&blocks[i]->data);
    }
    Store *stores[] = {&self->offset, &self->timestamp, &self->timestamp_type, &self->list_ends, &self->priority,
                       &self->due, &self->schema, &self->list_validity.bits, &self->due_validity.bits,
                       &self->schema_validity.bits};
    for (size_t i = 0; i < sizeof(stores) / sizeof(*stores); i++) drop(stores[i]);
    Py_CLEAR(self->parse);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *gatherer_rows(Gatherer *self, void *unused) {
    (void)unused;
    return PyLong_FromSsize_t(self->rows);
}

static PyObject *gatherer_size_bytes(Gatherer *self, void *unused) {
    (void)unused;
    return PyLong_FromSsize_t(self->size_bytes);
}

static PyMethodDef gatherer_methods[] = {
    {"add", (PyCFunction)gatherer_add, METH_VARARGS, "Take the records with offsets [lower, upper) of a payload."},
    {"add_run", (PyCFunction)gatherer_add_run, METH_VARARGS, "Take plain batches one behind the other."},
    {"take", (PyCFunction)gatherer_take, METH_NOARGS, "The count of rows and the columns; then start anew."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef gatherer_fields[] = {
    {"rows", (getter)gatherer_rows, NULL, "How many rows were gathered.", NULL},
    {"size_bytes", (getter)gatherer_size_bytes, NULL, "Of the payloads that were added.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject gatherer_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "goqueue.log._columns.Gatherer",
    .tp_basicsize = sizeof(Gatherer),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Gatherer(names, bytes_max, parse): gathers records into columns.",
    .tp_new = gatherer_new,
    .tp_dealloc = (destructor)gatherer_dealloc,
    .tp_methods = gatherer_methods,
    .tp_getset = gatherer_fields,
};

static PyMethodDef methods[] = {
    {"encode_columns", goqueue_encode_columns, METH_VARARGS,
     "encode_columns(rows, picked, base_timestamp, usual_timestamp) -> the payload of one batch"},
    {"record_sizes", goqueue_record_sizes, METH_VARARGS, "record_sizes(rows) -> the most bytes of each, int64"},
    {"partitions_of", goqueue_partitions_of, METH_VARARGS,
     "partitions_of(keys, partitioner, count) -> int32, -1 for null"},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module) { return PyModule_AddType(module, &gatherer_type); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_types}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_columns", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__columns(void) { return PyModuleDef_Init(&module); }
