/* What the files of the compiled module share. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Whether both are read now; if not, neither is, and an error is set. */
static inline int native_read_both(PyObject *const *objects, Py_buffer *first, Py_buffer *second)
{
    if (PyObject_GetBuffer(objects[0], first, PyBUF_SIMPLE) < 0)
        return 0;
    if (PyObject_GetBuffer(objects[1], second, PyBUF_SIMPLE) == 0)
        return 1;
    PyBuffer_Release(first);
    return 0;
}

/* Whether crc32 has answered for the bytes of an object; if not, an error is set. */
static inline int native_crc(PyObject *crc32, PyObject *bytes, unsigned long *crc)
{
    PyObject *answer = PyObject_Vectorcall(crc32, &bytes, 1, NULL);
    if (answer == NULL)
        return 0;
    *crc = PyLong_AsUnsignedLong(answer);
    Py_DECREF(answer);
    return *crc != (unsigned long)-1 || !PyErr_Occurred();
}

/* What the module knows. */
typedef struct {
    PyTypeObject *window;
} NativeState;

/* _native_listed.c */
PyObject *native_counted(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *native_numbers(PyObject *module, PyObject *const *args, Py_ssize_t given);
PyObject *native_keys(PyObject *module, PyObject *const *args, Py_ssize_t given);

/* _native_announced.c */
PyObject *native_announced(PyObject *module, PyObject *const *args, Py_ssize_t given);

/* _native_join.c */
PyObject *native_join(PyObject *module, PyObject *const *args, Py_ssize_t given);

/* _native_crcs.c */
extern PyType_Spec native_window;
PyObject *native_crcs_fit(PyObject *module, PyObject *const *args, Py_ssize_t given);

/* _native_ids.c */
extern PyType_Spec native_recent_ids;
PyObject *native_id_hashes(PyObject *module, PyObject *const *args, Py_ssize_t given);
