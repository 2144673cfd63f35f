/* Messages: where they hold their fields, and whether these are of the types that nearly all have. */

#include "_native.h"
#include <structmember.h>

static const char *const field_names[FIELDS] = {
    "topic", "body", "tags", "keys", "properties", "delay_level", "delay_ms", "deliver_at_ms", "sharding_key", "flag",
    "wait_store", "message_id", "dedup_id",
};

Py_ssize_t native_slot(PyTypeObject *type, const char *field)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)type, field);
    if (name == NULL)
        return -1;
    int its = Py_IS_TYPE(name, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(name));
    PyMemberDef *member = its ? ((PyMemberDescrObject *)name)->d_member : NULL;
    Py_DECREF(name);
    if (member != NULL && member->type == T_OBJECT_EX)
        return member->offset;
    PyErr_Format(PyExc_TypeError, "%s.%s is no slot", type->tp_name, field);
    return -1;
}

int native_find_places(Places *places, PyTypeObject *type)
{
    Places found = {NULL};
    for (int number = 0; number < FIELDS; number++)
        if ((found.at[number] = native_slot(type, field_names[number])) < 0)
            return -1;
    found.type = (PyTypeObject *)Py_NewRef(type);
    PyTypeObject *before = places->type;
    *places = found;
    Py_XDECREF(before);
    return 0;
}

int native_has_all_fields(const Places *places, PyObject *message)
{
    if (places->type == NULL || !Py_IS_TYPE(message, places->type))
        return 0;
    for (int number = 0; number < FIELDS; number++)
        if (native_field(places, message, number) == NULL)
            return 0;
    return 1;
}

void native_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    type->tp_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* MessageCheck: what a message does when it has been made. Those whose fields are plainly right pass; `slow` looks at
   all others, says what is wrong with them, or puts it right.
   Earned when it was made: 0.12 us for a message instead of 0.22. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Places places; /* of the type that was checked last */
    PyObject *slow, *nothing; /* the latter: what messages without properties have */
} MessageCheck;

static int check_traverse(MessageCheck *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->places.type);
    Py_VISIT(self->slow);
    Py_VISIT(self->nothing);
    return 0;
}

static int check_clear(MessageCheck *self)
{
    Py_CLEAR(self->places.type);
    Py_CLEAR(self->slow);
    Py_CLEAR(self->nothing);
    return 0;
}

static int is_text_or_none(PyObject *value)
{
    return value == Py_None || PyUnicode_CheckExact(value);
}

static int has_plain_types(const Places *places, PyObject *message)
{
    PyObject *keys = native_field(places, message, KEYS);
    return PyUnicode_CheckExact(native_field(places, message, TOPIC)) &&
           PyBytes_CheckExact(native_field(places, message, BODY)) && PyTuple_CheckExact(keys) &&
           PyTuple_GET_SIZE(keys) == 0 &&
           is_text_or_none(native_field(places, message, TAGS)) &&
           is_text_or_none(native_field(places, message, SHARDING_KEY)) &&
           is_text_or_none(native_field(places, message, DEDUP_ID)) &&
           PyLong_CheckExact(native_field(places, message, DELAY_LEVEL)) &&
           native_field(places, message, DELAY_MS) == Py_None &&
           native_field(places, message, DELIVER_AT) == Py_None &&
           PyLong_CheckExact(native_field(places, message, FLAG)) &&
           PyBool_Check(native_field(places, message, WAIT_STORE)) &&
           PyUnicode_CheckExact(native_field(places, message, MESSAGE_ID));
}

static PyObject *check_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    MessageCheck *self = (MessageCheck *)callable;
    if (PyVectorcall_NARGS(flags) != 1 || (names != NULL && PyTuple_GET_SIZE(names)))
        return PyErr_Format(PyExc_TypeError, "a check looks at one message");
    PyObject *message = args[0];
    if (self->places.type != Py_TYPE(message) && native_find_places(&self->places, Py_TYPE(message)) < 0)
        PyErr_Clear(); /* a type that slow has to know */
    int plain = native_has_all_fields(&self->places, message) && has_plain_types(&self->places, message) &&
                native_field(&self->places, message, PROPERTIES) == self->nothing;
    if (plain || self->slow == NULL) /* the latter while it is collected */
        Py_RETURN_NONE;
    return PyObject_CallOneArg(self->slow, message);
}

static int check_init(MessageCheck *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slow", "no_properties", NULL};
    PyObject *slow, *nothing;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:MessageCheck", names, &slow, &nothing))
        return -1;
    Py_XSETREF(self->slow, Py_NewRef(slow));
    Py_XSETREF(self->nothing, Py_NewRef(nothing));
    self->call = check_call;
    return 0;
}

/* As of a function: `super().__post_init__()` in a program's own kind of message. */
static PyObject *check_bound(PyObject *self, PyObject *message, PyObject *Py_UNUSED(type))
{
    return message == NULL ? Py_NewRef(self) : PyMethod_New(self, message);
}

static PyMemberDef check_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(MessageCheck, call), READONLY, NULL},
    {NULL},
};

static PyType_Slot check_slots[] = {
    {Py_tp_init, check_init},     {Py_tp_dealloc, native_free},      {Py_tp_traverse, check_traverse},
    {Py_tp_clear, check_clear},   {Py_tp_call, PyVectorcall_Call},   {Py_tp_descr_get, check_bound},
    {Py_tp_members, check_members}, {0, NULL},
};

PyType_Spec native_message_check = {
    "dejamq.native._native.MessageCheck", sizeof(MessageCheck), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, check_slots,
};
