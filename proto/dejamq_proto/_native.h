/* What the files of the compiled module share. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* _native_listed.c */
PyObject *native_counted(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *native_numbers(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *native_keys(PyObject *module, PyObject *const *args, Py_ssize_t given);
