/* Ids of messages, as unique_id.py makes them. */

#include "_native.h"
#include <time.h>

/* IdSource: ids of one millisecond differ in their last four digits only. As UniqueIds.take, whose advance gives what
   the ids of the next millisecond begin with. The interpreter's lock makes each step whole. Advance may let go of it:
   the moment that it gives holds the number it was asked for, and a number that is none of the moment's asks again. */

enum { PREFIX_DIGITS = 28 };

typedef struct {
    PyObject_HEAD
    PyObject *advance;
    unsigned long long number;
    double begins, ends; /* seconds since 1970 */
    long long first_number, last_number;
    char prefix[PREFIX_DIGITS];
} IdSource;

static int id_source_init(IdSource *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"advance", NULL};
    PyObject *advance;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:IdSource", names, &advance))
        return -1;
    Py_XSETREF(self->advance, Py_NewRef(advance));
    self->last_number = -1;
    return 0;
}

static int id_source_traverse(IdSource *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->advance);
    return 0;
}

static int id_source_clear(IdSource *self)
{
    Py_CLEAR(self->advance);
    return 0;
}

static int id_source_advance(IdSource *self, unsigned long long number)
{
    double begins, ends;
    long long first_number, last_number;
    const char *prefix;
    Py_ssize_t size;
    PyObject *moment = PyObject_CallFunction(self->advance, "K", number);
    if (moment == NULL)
        return -1;
    int parsed = PyTuple_Check(moment);
    if (!parsed)
        PyErr_Format(PyExc_TypeError, "advance gave a %s, not a tuple", Py_TYPE(moment)->tp_name);
    else
        parsed = PyArg_ParseTuple(moment, "ddLLs#:advance", &begins, &ends, &first_number, &last_number, &prefix,
                                  &size);
    if (parsed && size != PREFIX_DIGITS) {
        PyErr_Format(PyExc_ValueError, "an id begins with %d digits, not %zd", PREFIX_DIGITS, size);
        parsed = 0;
    }
    if (parsed) {
        self->begins = begins, self->ends = ends;
        self->first_number = first_number, self->last_number = last_number;
        memcpy(self->prefix, prefix, PREFIX_DIGITS);
    }
    Py_DECREF(moment);
    return parsed ? 0 : -1;
}

static PyObject *id_source_take(IdSource *self, PyObject *Py_UNUSED(none))
{
    static const char hex[] = "0123456789ABCDEF";
    unsigned long long number = self->number++;
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    double now = (double)clock.tv_sec + 1e-9 * (double)clock.tv_nsec;
    int inside = self->begins <= now && now < self->ends && self->first_number <= (long long)number &&
                 (long long)number <= self->last_number;
    if (!inside && id_source_advance(self, number) < 0)
        return NULL;
    PyObject *id = PyUnicode_New(ID_DIGITS, 127);
    if (id == NULL)
        return NULL;
    Py_UCS1 *digits = PyUnicode_1BYTE_DATA(id);
    memcpy(digits, self->prefix, PREFIX_DIGITS);
    for (int place = PREFIX_DIGITS; place < ID_DIGITS; place++)
        digits[place] = (Py_UCS1)hex[number >> 4 * (ID_DIGITS - 1 - place) & 15];
    return id;
}

static PyObject *id_source_forget(IdSource *self, PyObject *Py_UNUSED(none))
{
    self->last_number = -1;
    Py_RETURN_NONE;
}

static PyMethodDef id_source_methods[] = {
    {"take", (PyCFunction)id_source_take, METH_NOARGS, "A new id, 32 hex digits."},
    {"forget", (PyCFunction)id_source_forget, METH_NOARGS, "Ask advance before the next id: a fork made another process."},
    {NULL},
};

static PyType_Slot id_source_slots[] = {
    {Py_tp_init, id_source_init},       {Py_tp_dealloc, native_free},       {Py_tp_traverse, id_source_traverse},
    {Py_tp_clear, id_source_clear},     {Py_tp_methods, id_source_methods}, {0, NULL},
};

PyType_Spec native_id_source = {
    "dejamq.native._native.IdSource", sizeof(IdSource), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, id_source_slots,
};
