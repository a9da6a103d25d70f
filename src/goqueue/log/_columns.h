/* Columns to records: the half of _columns that its other file holds. */
#ifndef GOQUEUE_COLUMNS_H
#define GOQUEUE_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *goqueue_encode_columns(PyObject *self, PyObject *args);
PyObject *goqueue_record_sizes(PyObject *self, PyObject *args);
PyObject *goqueue_partitions_of(PyObject *self, PyObject *args);

#endif
