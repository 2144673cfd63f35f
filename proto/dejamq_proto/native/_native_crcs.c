/* Whether the bodies of a run have the CRCs that their headers say, by the crc32 of the library that run.py is given.

   Only good news: where one has not, the columns there find which and have the words for it. The library is asked in
   Python's way, as it offers no other, but for a slice of each body: a window shows it one body after the other.
   Earned when it was made: 0.04 us for a body of 1 KiB instead of 0.11, a seventh of what a run costs its broker without
   a network. */

#include "_native.h"
#include "_native_record.h"

/* Window: some bytes of data that it holds. Views of it that somebody keeps stay where they were, and so does data. */
typedef struct {
    PyObject_HEAD
    Py_buffer data;
    const uint8_t *begin;
    Py_ssize_t size;
} Window;

static int window_show(PyObject *self, Py_buffer *view, int flags)
{
    const Window *window = (Window *)self;
    return PyBuffer_FillInfo(view, self, (void *)window->begin, window->size, 1, flags);
}

static void window_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&((Window *)self)->data);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot window_slots[] = {{Py_tp_dealloc, window_dealloc}, {Py_bf_getbuffer, window_show}, {0, NULL}};

PyType_Spec native_window = {
    "dejamq_proto.native._native.Window", sizeof(Window), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    window_slots,
};

/* Let the window show the body of the record that begins there; 0: there is none. */
static int move_to(Window *window, int64_t at)
{
    if (at < 0 || window->data.len < HEADER_SIZE || at > window->data.len - HEADER_SIZE)
        return 0;
    const uint8_t *record = (const uint8_t *)window->data.buf + at;
    int64_t size = (int32_t)number_at(record + BODY_SIZE_AT);
    if (size < 0 || size > window->data.len - HEADER_SIZE - at)
        return 0;
    window->begin = record + HEADER_SIZE;
    window->size = (Py_ssize_t)size;
    return 1;
}

/* 1: the body of each has its CRC; 0: it is not plainly so; -1: crc32 raised. */
static int have_crcs(Window *window, const Py_buffer *positions, PyObject *crc32)
{
    Py_ssize_t count = positions->len / (Py_ssize_t)sizeof(int64_t);
    const int64_t *position = positions->buf;
    for (Py_ssize_t record = 0; record < count; record++) {
        unsigned long crc;
        if (!move_to(window, position[record]))
            return 0;
        if (!native_crc(crc32, (PyObject *)window, &crc))
            return -1;
        if ((crc & 0x7FFFFFFF) != number_at(window->begin - HEADER_SIZE + BODY_CRC_AT))
            return 0;
    }
    return 1;
}

PyObject *native_crcs_fit(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    const NativeState *state = PyModule_GetState(module);
    Py_buffer positions;
    if (given != 3)
        return PyErr_Format(PyExc_TypeError, "crcs_fit needs data, positions and crc32, not %zd arguments", given);
    Window *window = PyObject_New(Window, state->window);
    if (window == NULL)
        return NULL;
    window->data.obj = NULL;
    int fit = -1;
    if (PyObject_GetBuffer(args[0], &window->data, PyBUF_SIMPLE) == 0 &&
        PyObject_GetBuffer(args[1], &positions, PyBUF_SIMPLE) == 0) {
        fit = have_crcs(window, &positions, args[2]);
        PyBuffer_Release(&positions);
    }
    Py_DECREF(window);
    return fit < 0 ? NULL : PyBool_FromLong(fit);
}
