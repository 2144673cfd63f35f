/* Received messages: body and id of one, out of the run it came with, without a call of Python for each.

   Only what a batch has laid out is read here: bodies that lie as they were sent, ids of 32 digits. For all else the
   function of the property is called, which knows every kind of batch: received.py, batch.py.
   Earned when it was made: body and id cost 0.18 us instead of 0.36, a fifth of what a polled message cost. */

#include "_native.h"
#include "_native_key.h"

/* Layout: where the bodies and the properties of a run lie. The base of batch.Batch. */

enum { DATA, STARTS, ENDS, PROPERTIES_AT, LAID };

typedef struct {
    PyObject_HEAD
    Py_buffer laid[LAID]; /* of no length: nothing is laid out */
} Layout;

static void layout_forget(Layout *self)
{
    for (int number = 0; number < LAID; number++) {
        PyBuffer_Release(&self->laid[number]);
        self->laid[number].len = 0;
    }
}

static void layout_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    layout_forget((Layout *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *layout_lay(Layout *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != LAID)
        return PyErr_Format(PyExc_TypeError, "lay needs data and three columns, not %zd arguments", count);
    layout_forget(self);
    int fit = 1;
    for (int number = 0; fit && number < LAID; number++)
        fit = PyObject_GetBuffer(args[number], &self->laid[number], PyBUF_SIMPLE) == 0;
    for (int number = ENDS; fit && number < LAID; number++)
        if (self->laid[number].len != self->laid[STARTS].len) {
            PyErr_Format(PyExc_ValueError, "each record needs a start, an end and the place of its properties");
            fit = 0;
        }
    if (fit)
        Py_RETURN_NONE;
    layout_forget(self);
    return NULL;
}

/* What stands in this place of a column; -1: the column has no such place. */
static long long at(const Layout *batch, int column, Py_ssize_t index)
{
    const Py_buffer *laid = &batch->laid[column];
    return index < laid->len / (Py_ssize_t)sizeof(long long) ? ((const long long *)laid->buf)[index] : -1;
}

static PyMethodDef layout_methods[] = {
    {"lay", (PyCFunction)(void (*)(void))layout_lay, METH_FASTCALL,
     "In these bytes lie bodies, each from a start to an end, and properties: where, say columns of 64 bits."},
    {NULL},
};

static PyType_Slot layout_slots[] = {
    {Py_tp_dealloc, layout_dealloc}, {Py_tp_methods, layout_methods}, {0, NULL},
};

PyType_Spec native_layout = {
    "dejamq.native._native.Layout", sizeof(Layout), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, layout_slots,
};

static PyObject *body_of(const Layout *batch, Py_ssize_t index)
{
    const Py_buffer *data = &batch->laid[DATA];
    long long start = at(batch, STARTS, index), end = at(batch, ENDS, index);
    if (start < 0 || start > end || end > data->len)
        return NULL;
    return PyBytes_FromStringAndSize((const char *)data->buf + start, end - start);
}

/* Of an id with which the properties begin, as those of our SDK do. */
static PyObject *id_of(const Layout *batch, Py_ssize_t index)
{
    const uint8_t *id = native_key_at(&batch->laid[DATA], at(batch, PROPERTIES_AT, index));
    PyObject *text = id == NULL ? NULL : PyUnicode_New(KEY_DIGITS, 0x7F);
    if (text != NULL)
        memcpy(PyUnicode_1BYTE_DATA(text), id, KEY_DIGITS);
    return text;
}

/* BodyProperty and IdProperty: properties of a message, which holds its batch and its place there. */

typedef struct {
    PyObject_HEAD
    PyObject *slow;
    PyTypeObject *layout, *type; /* of all batches; of the message that was looked at last, or NULL */
    Py_ssize_t batch_at, index_at;
    PyObject *(*look)(const Layout *batch, Py_ssize_t index); /* NULL without an error: nothing is laid out */
} Property;

static int property_traverse(Property *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->slow);
    Py_VISIT(self->layout);
    Py_VISIT(self->type);
    return 0;
}

static int property_clear(Property *self)
{
    Py_CLEAR(self->slow);
    Py_CLEAR(self->layout);
    Py_CLEAR(self->type);
    return 0;
}

static int init(Property *self, PyObject *args, PyObject *(*look)(const Layout *, Py_ssize_t))
{
    PyObject *slow, *module = PyType_GetModule(Py_TYPE(self));
    if (module == NULL || !PyArg_ParseTuple(args, "O", &slow))
        return -1;
    PyObject *layout = PyObject_GetAttrString(module, "Layout");
    if (layout == NULL)
        return -1;
    self->look = look;
    Py_XSETREF(self->layout, (PyTypeObject *)layout);
    Py_XSETREF(self->slow, Py_NewRef(slow));
    return 0;
}

static int body_init(Property *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    return init(self, args, body_of);
}

static int id_init(Property *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    return init(self, args, id_of);
}

static int knows(Property *self, PyTypeObject *type)
{
    if (self->type == type)
        return 1;
    Py_ssize_t batch_at = native_slot(type, "_batch"), index_at = batch_at < 0 ? -1 : native_slot(type, "_index");
    if (index_at < 0) {
        PyErr_Clear(); /* a type that slow has to know */
        return 0;
    }
    self->batch_at = batch_at, self->index_at = index_at;
    Py_XSETREF(self->type, (PyTypeObject *)Py_NewRef(type));
    return 1;
}

static PyObject *slot(PyObject *message, Py_ssize_t at)
{
    return *(PyObject **)((char *)message + at);
}

static PyObject *looked_up(const Property *self, PyObject *message)
{
    PyObject *batch = slot(message, self->batch_at), *number = slot(message, self->index_at);
    if (batch == NULL || !PyObject_TypeCheck(batch, self->layout) || number == NULL || !PyLong_CheckExact(number))
        return NULL;
    Py_ssize_t index = PyLong_AsSsize_t(number);
    if (index >= 0)
        return self->look((const Layout *)batch, index);
    PyErr_Clear();
    return NULL;
}

static PyObject *property_get(Property *self, PyObject *message, PyObject *Py_UNUSED(type))
{
    if (message == NULL)
        return Py_NewRef(self);
    if (self->slow == NULL)
        return PyErr_Format(PyExc_TypeError, "a property that was never made has no value");
    PyObject *found = self->layout != NULL && knows(self, Py_TYPE(message)) ? looked_up(self, message) : NULL;
    return found != NULL || PyErr_Occurred() ? found : PyObject_CallOneArg(self->slow, message);
}

static PyObject *property_doc(Property *self, void *Py_UNUSED(closure))
{
    return self->slow == NULL ? Py_NewRef(Py_None) : PyObject_GetAttrString(self->slow, "__doc__");
}

static PyGetSetDef property_getters[] = {{"__doc__", (getter)property_doc, NULL, NULL, NULL}, {NULL}};

#define PROPERTY(init)                                                                                                 \
    {                                                                                                                  \
        {Py_tp_init, init}, {Py_tp_dealloc, native_free}, {Py_tp_traverse, property_traverse},                         \
            {Py_tp_clear, property_clear}, {Py_tp_descr_get, property_get}, {Py_tp_getset, property_getters}, {0, NULL}, \
    }

static PyType_Slot body_slots[] = PROPERTY(body_init), id_slots[] = PROPERTY(id_init);

PyType_Spec native_body_property = {
    "dejamq.native._native.BodyProperty", sizeof(Property), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, body_slots,
};
PyType_Spec native_id_property = {
    "dejamq.native._native.IdProperty", sizeof(Property), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, id_slots,
};
