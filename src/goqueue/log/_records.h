/* Reading one record of a batch's payload (docs/format/record.md), for all that is compiled. Nothing is read outside
 * of the cursor that is given. */
#ifndef GOQUEUE_RECORDS_H
#define GOQUEUE_RECORDS_H

#include <Python.h>
#include <stdint.h>

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* One record, as pointers into the payload. A length of -1 means null. */
typedef struct {
    int64_t timestamp_delta, offset_delta;
    const uint8_t *key, *value;
    int64_t key_length, value_length, header_count;
    Cursor headers; /* what follows the header count, up to the record's end */
} Record;

static inline int read_varint(Cursor *cursor, int64_t *out) {
    if (cursor->at < cursor->end && *cursor->at < 128) { /* nearly all of them */
        uint8_t raw = *cursor->at++;
        *out = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
        return 1;
    }
    uint64_t raw = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (cursor->at >= cursor->end) return 0;
        uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1) return 0; /* more than 64 bits */
        raw |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}

/* A length and that many bytes; `least` is -1 where null is allowed. */
static inline int read_block(Cursor *cursor, int64_t least, const uint8_t **block, int64_t *length) {
    if (!read_varint(cursor, length)) return 0;
    if (*length < least || *length > cursor->end - cursor->at) return 0;
    *block = cursor->at;
    if (*length > 0) cursor->at += *length;
    return 1;
}

/* NULL, or what is wrong. Leaves the payload cursor after the record. */
static inline const char *read_record(Cursor *payload, int64_t previous, int64_t last, Record *record) {
    const uint8_t *block;
    int64_t length;
    if (!read_block(payload, 1, &block, &length)) return "its length does not fit the batch";
    Cursor body = {block + 1, block + length}; /* the attributes byte is unused */
    if (!read_varint(&body, &record->timestamp_delta)) return "bad timestamp delta";
    if (!read_varint(&body, &record->offset_delta)) return "bad offset delta";
    if (record->offset_delta <= previous || record->offset_delta > last)
        return "its offset delta is out of order or beyond the batch's last";
    if (!read_block(&body, -1, &record->key, &record->key_length)) return "bad key length";
    if (!read_block(&body, -1, &record->value, &record->value_length)) return "bad value length";
    if (!read_varint(&body, &record->header_count) || record->header_count < 0) return "bad header count";
    record->headers = body;
    for (int64_t i = 0; i < record->header_count; i++) {
        if (!read_block(&body, 0, &block, &length)) return "bad header name";
        if (!read_block(&body, -1, &block, &length)) return "bad header value";
    }
    if (body.at != body.end) return "its length does not match its content";
    return NULL;
}

static inline PyObject *refuse(Py_ssize_t index, const char *reason) {
    return PyErr_Format(PyExc_ValueError, "record %zd: %s", index, reason);
}

static inline PyObject *refuse_rest(Py_ssize_t count) {
    return PyErr_Format(PyExc_ValueError, "bytes are left over after %zd records", count);
}

#endif
