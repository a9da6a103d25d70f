/* Columns to records: rows of Arrow's buffers written as the payload of a batch, and the partitions of keys.
 *
 * The twin in `columns.py` says what is right. Offsets in the buffers are checked before a byte behind them is read.
 */
#include "_columns.h"

#include <stdint.h>
#include <string.h>

#define PAYLOAD_BYTES_MAX ((int64_t)INT32_MAX - 128)
#define DELTAS_BYTES_MAX (5 + 10 + 5)
#define NO_TIMESTAMP INT64_MIN
#define TOO_SHORT "a column is shorter than the rows"

static const char priority_name[] = "gq-priority", due_name[] = "gq-deliver-at";
#define PRIORITY_NAME_LENGTH ((int64_t)sizeof(priority_name) - 1)
#define DUE_NAME_LENGTH ((int64_t)sizeof(due_name) - 1)

/* `length` blocks from index `first` on, with 64-bit offsets. */
typedef struct {
    Py_buffer validity, offsets, data;
    long long first, length;
} Strings;

typedef struct {
    Py_buffer validity, offsets;
    long long first;
    Strings names, values;
} Lists;

typedef struct {
    long long length;
    int has_keys, has_values, has_headers;
    Strings keys, values;
    Lists headers;
    Py_buffer priorities, due, timestamps, prefix;
} Rows;

typedef struct {
    const uint8_t *at;
    int64_t length; /* -1 is null */
} Block;

/* One row, as pointers into the columns. */
typedef struct {
    int64_t timestamp_delta, offset_delta;
    Block key, value; /* the value without its prefix */
    int64_t first_header, end_header;
    int priority;   /* -1 is none */
    int64_t due_ms; /* -1 is none */
} Row;

/* ---------------------------------------------------------------- opening the columns */

static int refuse(const char *reason) {
    PyErr_SetString(PyExc_ValueError, reason);
    return 0;
}

static int check_ends(const Py_buffer *validity, const Py_buffer *offsets, long long first, long long length) {
    long long room = offsets->len / 8;
    if (first < 0 || length < 0 || first > room || length > room - first - 1) return refuse(TOO_SHORT);
    if (validity->buf && (first + length + 7) / 8 > validity->len) return refuse(TOO_SHORT);
    return 1;
}

static int open_strings(PyObject *given, Strings *strings) {
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple of its buffers");
        return 0;
    }
    return PyArg_ParseTuple(given, "z*y*y*LL", &strings->validity, &strings->offsets, &strings->data, &strings->first,
                            &strings->length) &&
           check_ends(&strings->validity, &strings->offsets, strings->first, strings->length);
}

static void close_strings(Strings *strings) {
    PyBuffer_Release(&strings->validity);
    PyBuffer_Release(&strings->offsets);
    PyBuffer_Release(&strings->data);
}

static int open_headers(PyObject *given, Rows *rows) {
    PyObject *names, *values;
    Lists *lists = &rows->headers;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "headers are a tuple of their buffers");
        return 0;
    }
    return PyArg_ParseTuple(given, "z*y*LOO", &lists->validity, &lists->offsets, &lists->first, &names, &values) &&
           check_ends(&lists->validity, &lists->offsets, lists->first, rows->length) &&
           open_strings(names, &lists->names) && open_strings(values, &lists->values);
}

static int check_numbers(const Py_buffer *numbers, long long length, int width) {
    return !numbers->buf || length <= numbers->len / width ? 1 : refuse(TOO_SHORT);
}

/* Whatever it returns, close_rows is to be called. */
static int open_rows(PyObject *given, Rows *rows) {
    PyObject *keys, *values, *headers;
    memset(rows, 0, sizeof(*rows));
    if (!PyArg_ParseTuple(given, "LOOOz*z*z*y*", &rows->length, &keys, &values, &headers, &rows->priorities,
                          &rows->due, &rows->timestamps, &rows->prefix))
        return 0;
    if (rows->length < 0) return refuse(TOO_SHORT);
    rows->has_keys = keys != Py_None;
    rows->has_values = values != Py_None;
    rows->has_headers = headers != Py_None;
    if (rows->has_keys && !open_strings(keys, &rows->keys)) return 0;
    if (rows->has_values && !open_strings(values, &rows->values)) return 0;
    if (rows->has_headers && !open_headers(headers, rows)) return 0;
    if (rows->has_keys && rows->keys.length < rows->length) return refuse(TOO_SHORT);
    if (rows->has_values && rows->values.length < rows->length) return refuse(TOO_SHORT);
    return check_numbers(&rows->priorities, rows->length, 1) && check_numbers(&rows->due, rows->length, 8) &&
           check_numbers(&rows->timestamps, rows->length, 8);
}

static void close_rows(Rows *rows) {
    close_strings(&rows->keys);
    close_strings(&rows->values);
    close_strings(&rows->headers.names);
    close_strings(&rows->headers.values);
    PyBuffer_Release(&rows->headers.validity);
    PyBuffer_Release(&rows->headers.offsets);
    PyBuffer_Release(&rows->priorities);
    PyBuffer_Release(&rows->due);
    PyBuffer_Release(&rows->timestamps);
    PyBuffer_Release(&rows->prefix);
}

/* ---------------------------------------------------------------- reading a row */

static inline int is_null(const Py_buffer *validity, int64_t at) {
    return validity->buf && !(((const uint8_t *)validity->buf)[at >> 3] >> (at & 7) & 1);
}

/* NULL, or what is wrong. */
static inline const char *read_string(const Strings *strings, int64_t index, Block *block) {
    int64_t at = strings->first + index;
    if (is_null(&strings->validity, at)) {
        block->at = NULL;
        block->length = -1;
        return NULL;
    }
    const int64_t *ends = (const int64_t *)strings->offsets.buf + at;
    if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > strings->data.len)
        return "its bytes lie outside of their buffer";
    block->at = (const uint8_t *)strings->data.buf + ends[0];
    block->length = ends[1] - ends[0];
    return NULL;
}

static const char *read_headers(const Lists *lists, int64_t index, Row *row) {
    int64_t at = lists->first + index;
    row->first_header = row->end_header = 0;
    if (is_null(&lists->validity, at)) return NULL;
    const int64_t *ends = (const int64_t *)lists->offsets.buf + at;
    if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > lists->names.length || ends[1] > lists->values.length)
        return "its headers lie outside of their buffer";
    Block block = {NULL, -1};
    for (int64_t i = ends[0]; i < ends[1]; i++) {
        const char *wrong = read_string(&lists->names, i, &block);
        if (wrong) return wrong;
        if (block.length < 0) return "a header has no name";
        wrong = read_string(&lists->values, i, &block);
        if (wrong) return wrong;
    }
    row->first_header = ends[0];
    row->end_header = ends[1];
    return NULL;
}

static inline const char *read_row(const Rows *rows, int64_t index, Row *row) {
    const char *wrong = NULL;
    row->key.length = row->value.length = -1;
    row->first_header = row->end_header = 0;
    if (rows->has_keys && (wrong = read_string(&rows->keys, index, &row->key))) return wrong;
    if (rows->has_values && (wrong = read_string(&rows->values, index, &row->value))) return wrong;
    if (rows->has_headers && (wrong = read_headers(&rows->headers, index, row))) return wrong;
    row->priority = rows->priorities.buf ? ((const int8_t *)rows->priorities.buf)[index] : -1;
    row->due_ms = rows->due.buf ? ((const int64_t *)rows->due.buf)[index] : -1;
    return NULL;
}

static inline const char *read_time(const Rows *rows, int64_t index, int64_t base, int64_t usual, Row *row) {
    int64_t time = rows->timestamps.buf ? ((const int64_t *)rows->timestamps.buf)[index] : NO_TIMESTAMP;
    if (time == NO_TIMESTAMP) time = usual;
    if ((base < 0 && time > INT64_MAX + base) || (base > 0 && time < INT64_MIN + base))
        return "its timestamp is too far from that of its batch";
    row->timestamp_delta = time - base;
    return NULL;
}

/* ---------------------------------------------------------------- sizes */

static inline int64_t varint_size(int64_t number) {
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    int64_t size = 1;
    while (raw > 127) raw >>= 7, size++;
    return size;
}

static inline int64_t block_size(int64_t length) { return length < 0 ? 1 : varint_size(length) + length; }

static int digit_count(int64_t number) {
    int count = 1;
    while (number > 9) number /= 10, count++;
    return count;
}

static inline int64_t value_length(const Rows *rows, const Row *row) {
    return row->value.length < 0 ? -1 : row->value.length + rows->prefix.len;
}

static inline int64_t header_count(const Row *row) {
    return row->end_header - row->first_header + (row->priority >= 0) + (row->due_ms >= 0);
}

/* What does not depend on the batch: attributes, key, value and headers. */
static inline int64_t content_size(const Rows *rows, const Row *row) {
    int64_t size = 1 + block_size(row->key.length) + block_size(value_length(rows, row));
    size += varint_size(header_count(row));
    Block block = {NULL, -1};
    for (int64_t i = row->first_header; i < row->end_header; i++) {
        read_string(&rows->headers.names, i, &block); /* checked by read_headers */
        size += block_size(block.length);
        read_string(&rows->headers.values, i, &block);
        size += block_size(block.length);
    }
    if (row->priority >= 0) size += block_size(PRIORITY_NAME_LENGTH) + block_size(digit_count(row->priority));
    if (row->due_ms >= 0) size += block_size(DUE_NAME_LENGTH) + block_size(digit_count(row->due_ms));
    return size;
}

/* ---------------------------------------------------------------- writing */

static inline uint8_t *write_varint(uint8_t *at, int64_t number) {
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    while (raw > 127) {
        *at++ = (uint8_t)(raw | 128);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    return at;
}

static inline uint8_t *write_bytes(uint8_t *at, const void *block, int64_t length) {
    if (length > 0) memcpy(at, block, (size_t)length);
    return length > 0 ? at + length : at;
}

static inline uint8_t *write_block(uint8_t *at, const void *block, int64_t length) {
    return write_bytes(write_varint(at, length), block, length);
}

static uint8_t *write_digits(uint8_t *at, int64_t number) {
    int count = digit_count(number);
    at = write_varint(at, count);
    for (int i = count - 1; i >= 0; i--, number /= 10) at[i] = (uint8_t)('0' + number % 10);
    return at + count;
}

static uint8_t *write_headers(uint8_t *at, const Rows *rows, const Row *row) {
    Block block = {NULL, -1};
    at = write_varint(at, header_count(row));
    for (int64_t i = row->first_header; i < row->end_header; i++) {
        read_string(&rows->headers.names, i, &block);
        at = write_block(at, block.at, block.length);
        read_string(&rows->headers.values, i, &block);
        at = write_block(at, block.at, block.length);
    }
    if (row->priority >= 0) at = write_digits(write_block(at, priority_name, PRIORITY_NAME_LENGTH), row->priority);
    if (row->due_ms >= 0) at = write_digits(write_block(at, due_name, DUE_NAME_LENGTH), row->due_ms);
    return at;
}

static inline uint8_t *write_row(uint8_t *at, const Rows *rows, const Row *row) {
    int64_t size = content_size(rows, row) + varint_size(row->timestamp_delta) + varint_size(row->offset_delta);
    at = write_varint(at, size);
    *at++ = 0; /* attributes */
    at = write_varint(at, row->timestamp_delta);
    at = write_varint(at, row->offset_delta);
    at = write_block(at, row->key.at, row->key.length);
    at = write_varint(at, value_length(rows, row));
    if (row->value.length >= 0) {
        at = write_bytes(at, rows->prefix.buf, rows->prefix.len);
        at = write_bytes(at, row->value.at, row->value.length);
    }
    return write_headers(at, rows, row);
}

/* How many bytes the picked rows take, or -1. */
static int64_t check_picked(const Rows *rows, const int64_t *picked, int64_t count, int64_t base, int64_t usual) {
    Row row = {0};
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        if (picked[i] < 0 || picked[i] >= rows->length) {
            PyErr_Format(PyExc_ValueError, "there is no row %lld; there are %lld", (long long)picked[i],
                         rows->length);
            return -1;
        }
        const char *wrong = read_time(rows, picked[i], base, usual, &row);
        if (!wrong) wrong = read_row(rows, picked[i], &row);
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "row %lld: %s", (long long)picked[i], wrong);
            return -1;
        }
        int64_t size = content_size(rows, &row) + varint_size(row.timestamp_delta) + varint_size(i);
        total += varint_size(size) + size;
        if (total > PAYLOAD_BYTES_MAX) {
            PyErr_Format(PyExc_ValueError, "the rows take more than the %lld bytes that a batch can have",
                         (long long)PAYLOAD_BYTES_MAX);
            return -1;
        }
    }
    return total;
}

PyObject *goqueue_encode_columns(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given, *payload = NULL;
    Py_buffer picked;
    long long base, usual;
    Rows rows;
    if (!PyArg_ParseTuple(args, "O!y*LL", &PyTuple_Type, &given, &picked, &base, &usual)) return NULL;
    if (!open_rows(given, &rows)) goto done;
    const int64_t *indices = picked.buf;
    int64_t count = picked.len / 8;
    int64_t total = check_picked(&rows, indices, count, base, usual);
    if (total < 0) goto done;
    payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (!payload) goto done;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(payload);
    for (int64_t i = 0; i < count; i++) {
        Row row = {0};
        read_time(&rows, indices[i], base, usual, &row); /* checked by check_picked */
        read_row(&rows, indices[i], &row);
        row.offset_delta = i;
        at = write_row(at, &rows, &row);
    }
done:
    close_rows(&rows);
    PyBuffer_Release(&picked);
    return payload;
}

PyObject *goqueue_record_sizes(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given, *sizes = NULL;
    Rows rows;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &given)) return NULL;
    if (!open_rows(given, &rows)) goto done;
    sizes = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)rows.length * 8);
    if (!sizes) goto done;
    int64_t *out = (int64_t *)PyByteArray_AS_STRING(sizes);
    for (int64_t i = 0; i < rows.length; i++) {
        Row row = {0};
        const char *wrong = read_row(&rows, i, &row);
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "row %lld: %s", (long long)i, wrong);
            Py_CLEAR(sizes);
            break;
        }
        out[i] = content_size(&rows, &row) + DELTAS_BYTES_MAX;
    }
done:
    close_rows(&rows);
    return sizes;
}

/* ---------------------------------------------------------------- partitions of keys */

static inline uint32_t read_word(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The bytes behind the last whole word, the first lowest. */
static inline uint32_t read_tail(const uint8_t *at, int64_t length) {
    uint32_t word = 0;
    for (int64_t i = length & 3; i > 0; i--) word = word << 8 | at[(length & ~(int64_t)3) + i - 1];
    return word;
}

static uint32_t murmur3(Block key) {
    uint32_t hashed = 0;
    const uint32_t c1 = 0xcc9e2d51, c2 = 0x1b873593;
    for (int64_t at = 0; at + 4 <= key.length; at += 4) {
        uint32_t word = read_word(key.at + at) * c1;
        hashed ^= (word << 15 | word >> 17) * c2;
        hashed = (hashed << 13 | hashed >> 19) * 5 + 0xe6546b64;
    }
    uint32_t tail = read_tail(key.at, key.length) * c1;
    hashed ^= (tail << 15 | tail >> 17) * c2;
    hashed ^= (uint32_t)key.length;
    hashed = (hashed ^ hashed >> 16) * 0x85ebca6b;
    hashed = (hashed ^ hashed >> 13) * 0xc2b2ae35;
    return (hashed ^ hashed >> 16) & 0x7fffffff;
}

static uint32_t murmur2(Block key) {
    const uint32_t multiplier = 0x5bd1e995;
    uint32_t hashed = 0x9747b28c ^ (uint32_t)key.length;
    for (int64_t at = 0; at + 4 <= key.length; at += 4) {
        uint32_t word = read_word(key.at + at) * multiplier;
        hashed = hashed * multiplier ^ (word ^ word >> 24) * multiplier;
    }
    if (key.length & 3) hashed = (hashed ^ read_tail(key.at, key.length)) * multiplier;
    hashed = (hashed ^ hashed >> 13) * multiplier;
    return (hashed ^ hashed >> 15) & 0x7fffffff;
}

static uint32_t crc32(Block key) {
    static uint32_t table[256];
    for (uint32_t byte = 0; !table[255] && byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? 0xedb88320 : 0);
        table[byte] = rest;
    }
    uint32_t crc = 0xffffffff;
    for (int64_t i = 0; i < key.length; i++) crc = crc >> 8 ^ table[(crc ^ key.at[i]) & 0xff];
    return ~crc;
}

typedef uint32_t (*Hash)(Block);

static Hash hash_named(const char *name) {
    if (strcmp(name, "murmur3") == 0) return murmur3;
    if (strcmp(name, "murmur2") == 0) return murmur2;
    if (strcmp(name, "crc32") == 0) return crc32;
    PyErr_Format(PyExc_ValueError, "'%s' is not a valid Partitioner", name);
    return NULL;
}

PyObject *goqueue_partitions_of(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *given, *partitions = NULL;
    const char *name;
    long long count;
    Strings keys;
    memset(&keys, 0, sizeof(keys));
    if (!PyArg_ParseTuple(args, "O!sL", &PyTuple_Type, &given, &name, &count)) return NULL;
    if (!open_strings(given, &keys)) goto done;
    if (count < 1 || count > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a topic cannot have %lld partitions", count);
        goto done;
    }
    Hash hash = hash_named(name);
    if (!hash) goto done;
    partitions = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)keys.length * 4);
    if (!partitions) goto done;
    int32_t *out = (int32_t *)PyByteArray_AS_STRING(partitions);
    for (int64_t i = 0; i < keys.length; i++) {
        Block key;
        const char *wrong = read_string(&keys, i, &key);
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "row %lld: %s", (long long)i, wrong);
            Py_CLEAR(partitions);
            break;
        }
        out[i] = key.length < 0 ? -1 : (int32_t)(hash(key) % (uint32_t)count);
    }
done:
    close_strings(&keys);
    return partitions;
}
