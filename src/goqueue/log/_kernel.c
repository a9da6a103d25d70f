/* The loops over records that Python is too slow for: checking, decoding and searching the payload of a batch.
 *
 * Optional: `records.py` holds the same functions in Python and uses those where this module was not
 * compiled. A property test proves that the twins accept, refuse and return the same. Both refuse with a
 * ValueError that names the record; neither ever reads outside [start, len(data)).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_hashes.h"
#include "_keys.h"
#include "_records.h"

/* The largest timestamp delta, or None of no records. */
static PyObject *check_records(PyObject *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, count;
    long long last;
    if (!PyArg_ParseTuple(args, "y*nnL", &data, &start, &count, &last)) return NULL;
    PyObject *result = NULL;
    if (start < 0 || start > data.len) {
        PyErr_SetString(PyExc_ValueError, "the batch has no payload");
        goto done;
    }
    Cursor payload = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + data.len};
    Record record;
    int64_t previous = -1, newest = INT64_MIN;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *wrong = read_record(&payload, previous, last, &record);
        if (wrong) {
            refuse(i, wrong);
            goto done;
        }
        previous = record.offset_delta;
        if (record.timestamp_delta > newest) newest = record.timestamp_delta;
    }
    if (payload.at != payload.end) {
        refuse_rest(count);
        goto done;
    }
    result = count > 0 ? PyLong_FromLongLong(newest) : Py_NewRef(Py_None);
done:
    PyBuffer_Release(&data);
    return result;
}

static PyObject *as_bytes(const uint8_t *block, int64_t length) {
    if (length < 0) return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)block, (Py_ssize_t)length);
}

static PyObject *decode_headers(const Record *record) {
    PyObject *headers = PyTuple_New((Py_ssize_t)record->header_count);
    if (!headers) return NULL;
    Cursor cursor = record->headers;
    const uint8_t *name = NULL, *value = NULL;
    int64_t name_length = 0, value_length = 0;
    for (Py_ssize_t i = 0; i < (Py_ssize_t)record->header_count; i++) {
        read_block(&cursor, 0, &name, &name_length); /* checked by read_record */
        read_block(&cursor, -1, &value, &value_length);
        PyObject *text = PyUnicode_DecodeUTF8((const char *)name, (Py_ssize_t)name_length, "replace");
        PyObject *content = text ? as_bytes(value, value_length) : NULL;
        PyObject *pair = content ? PyTuple_Pack(2, text, content) : NULL;
        Py_XDECREF(text);
        Py_XDECREF(content);
        if (!pair) {
            Py_DECREF(headers);
            return NULL;
        }
        PyTuple_SET_ITEM(headers, i, pair);
    }
    return headers;
}

static PyObject *decode_record(const Record *record) {
    PyObject *row = PyTuple_New(5);
    if (!row) return NULL;
    PyTuple_SET_ITEM(row, 0, PyLong_FromLongLong(record->offset_delta));
    PyTuple_SET_ITEM(row, 1, PyLong_FromLongLong(record->timestamp_delta));
    PyTuple_SET_ITEM(row, 2, as_bytes(record->key, record->key_length));
    PyTuple_SET_ITEM(row, 3, as_bytes(record->value, record->value_length));
    PyTuple_SET_ITEM(row, 4, decode_headers(record));
    for (int i = 0; i < 5; i++) {
        if (!PyTuple_GET_ITEM(row, i)) {
            Py_DECREF(row);
            return NULL;
        }
    }
    return row;
}

/* Whether a record is the next that is wanted: `wanted` rises, or is NULL where all of them are. -1 is an error. */
static int is_wanted(int64_t offset_delta, PyObject *wanted, Py_ssize_t *at) {
    if (!wanted) return 1;
    while (*at < PyList_GET_SIZE(wanted)) {
        int64_t next = PyLong_AsLongLong(PyList_GET_ITEM(wanted, *at));
        if (next == -1 && PyErr_Occurred()) return -1;
        if (next >= offset_delta) return next == offset_delta;
        (*at)++;
    }
    return 0;
}

static PyObject *decode_records(PyObject *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, count, at = 0;
    long long last;
    PyObject *wanted = NULL;
    if (!PyArg_ParseTuple(args, "y*nnL|O!", &data, &start, &count, &last, &PyList_Type, &wanted)) return NULL;
    PyObject *rows = NULL;
    if (start < 0 || start > data.len) {
        PyErr_SetString(PyExc_ValueError, "the batch has no payload");
        goto done;
    }
    rows = PyList_New(0);
    if (!rows) goto done;
    Cursor payload = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + data.len};
    Record record;
    int64_t previous = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *wrong = read_record(&payload, previous, last, &record);
        if (wrong) {
            refuse(i, wrong);
            goto fail;
        }
        previous = record.offset_delta;
        int is_given = is_wanted(record.offset_delta, wanted, &at);
        if (is_given < 0) goto fail;
        if (!is_given) continue;
        PyObject *row = decode_record(&record);
        if (!row) goto fail;
        int failed = PyList_Append(rows, row);
        Py_DECREF(row);
        if (failed) goto fail;
    }
    if (payload.at == payload.end) goto done;
    refuse_rest(count);
fail:
    Py_CLEAR(rows);
done:
    PyBuffer_Release(&data);
    return rows;
}

/* The first byte is looked for with memchr, which is as fast as memory; Python's own search takes ten times as long. */
static PyObject *contains(PyObject *self, PyObject *args) {
    Py_buffer data, mark;
    if (!PyArg_ParseTuple(args, "y*y*", &data, &mark)) return NULL;
    const char *at = data.buf, *end = at + data.len, *first = mark.buf;
    int found = mark.len == 0;
    while (!found && end - at >= mark.len && (at = memchr(at, *first, end - at - mark.len + 1))) {
        found = memcmp(at, first, mark.len) == 0;
        at++;
    }
    PyBuffer_Release(&mark);
    PyBuffer_Release(&data);
    return PyBool_FromLong(found);
}

/* Whether every record that has a key has one whose hash, modulo `modulus`, is `index`. */
static PyObject *are_home(PyObject *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t start, count;
    long long last;
    int kind;
    unsigned int modulus, index;
    if (!PyArg_ParseTuple(args, "y*nnLiII", &data, &start, &count, &last, &kind, &modulus, &index)) return NULL;
    PyObject *result = NULL;
    if (start < 0 || start > data.len || modulus == 0) {
        PyErr_SetString(PyExc_ValueError, "the batch has no payload");
        goto done;
    }
    Cursor payload = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + data.len};
    Record record;
    int64_t previous = -1;
    int is_home = 1;
    for (Py_ssize_t i = 0; i < count && is_home; i++) {
        const char *wrong = read_record(&payload, previous, last, &record);
        if (wrong) {
            refuse(i, wrong);
            goto done;
        }
        previous = record.offset_delta;
        is_home = record.key_length < 0 || hash_key(kind, record.key, record.key_length) % modulus == index;
    }
    result = PyBool_FromLong(is_home);
done:
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {
    {"check_records", check_records, METH_VARARGS,
     "check_records(data, start, count, last_offset_delta) -> largest timestamp delta or None"},
    {"decode_records", decode_records, METH_VARARGS,
     "decode_records(data, start, count, last_offset_delta, wanted = all) -> rows with these offset deltas, which rise"},
    {"are_home", are_home, METH_VARARGS,
     "are_home(data, start, count, last_offset_delta, kind, modulus, index) -> whether all keys belong there"},
    {"contains", contains, METH_VARARGS, "contains(data, mark) -> whether the bytes of mark are in data"},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module) {
    PyObject *type = PyType_FromSpec(&key_map_spec);
    int failed = type ? PyModule_AddObjectRef(module, "KeyMap", type) : -1;
    Py_XDECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_types}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&module); }
