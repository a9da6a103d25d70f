/* The type that `_keys.c` adds to the kernel. */
#ifndef GOQUEUE_KEYS_H
#define GOQUEUE_KEYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyType_Spec key_map_spec;

#endif
