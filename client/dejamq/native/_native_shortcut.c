#include "_native.h"

/* Shortcut: puts a message behind others, when one like it was sent before: it has nothing of its own but body and id.
   Owned by the producer's loop. */

enum { MODE, MESSAGES, COMMONS, SIZES, FUTURES, BEGIN, JOINED };

/* What messages that were sent before have in common, found by the hashes of topic and tags. */
typedef struct {
    PyObject *topic, *tags, *flag; /* NULL: nothing is here */
    PyObject *common;
    long long size;                    /* of a record without its body */
    PyObject *last_number;             /* what the last one's record had: nearly always the next one's has it too */
    long long last_size;
} Model;

enum { MODELS = 1 << 9, NEIGHBOURS = 4 };

typedef struct {
    PyObject_HEAD
    Places places;
    Tally *tally;
    PyObject *new_future, *nothing, *arguments; /* nothing: an empty tuple */
    long long max_bytes, call_bytes, body_below;
    unsigned long long turns; /* how often it was opened and closed */
    PyObject *joined[JOINED]; /* a mode, its columns, what is called before the first joins; NULL while closed */
    Model models[MODELS];
} Shortcut;

/* Borrowed; NULL for a field that was never set. */
static PyObject *field(const Shortcut *self, PyObject *message, int number)
{
    return native_field(&self->places, message, number);
}

static PyObject *shortcut_close(Shortcut *self, PyObject *Py_UNUSED(none))
{
    self->turns++;
    for (int number = 0; number < JOINED; number++)
        Py_CLEAR(self->joined[number]);
    Py_RETURN_NONE;
}

static int shortcut_init(Shortcut *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"message_type", "tally",      "new_future", "arguments",
                            "max_bytes",    "call_bytes", "body_below", NULL};
    const NativeState *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *message_type, *tally, *new_future, *arguments;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OO!LLL:Shortcut", names, &PyType_Type, &message_type,
                                     state->tally, &tally, &new_future, &PyDict_Type, &arguments, &self->max_bytes,
                                     &self->call_bytes, &self->body_below))
        return -1;
    PyObject *nothing = PyTuple_New(0);
    if (nothing == NULL)
        return -1;
    Py_XSETREF(self->nothing, nothing);
    Py_XSETREF(self->arguments, Py_NewRef(arguments));
    Py_DECREF(shortcut_close(self, NULL)); /* made anew, it is for other messages than those that it was open to */
    Py_XSETREF(self->tally, (Tally *)Py_NewRef(tally));
    Py_XSETREF(self->new_future, Py_NewRef(new_future));
    return native_find_places(&self->places, (PyTypeObject *)message_type);
}

static int shortcut_traverse(Shortcut *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->places.type);
    Py_VISIT(self->tally);
    Py_VISIT(self->new_future);
    Py_VISIT(self->arguments);
    for (int number = 0; number < JOINED; number++)
        Py_VISIT(self->joined[number]);
    for (int number = 0; number < MODELS; number++)
        Py_VISIT(self->models[number].common);
    return 0;
}

static void forget(Model *model)
{
    Py_CLEAR(model->topic);
    Py_CLEAR(model->tags);
    Py_CLEAR(model->flag);
    Py_CLEAR(model->common);
    Py_CLEAR(model->last_number);
}

static int shortcut_clear(Shortcut *self)
{
    Py_XDECREF(shortcut_close(self, NULL));
    Py_CLEAR(self->places.type);
    Py_CLEAR(self->tally);
    Py_CLEAR(self->new_future);
    Py_CLEAR(self->nothing);
    Py_CLEAR(self->arguments);
    for (int number = 0; number < MODELS; number++)
        forget(&self->models[number]);
    return 0;
}

/* Its arguments are no tuple: making one may collect garbage, which may close what is to be opened. */
static PyObject *shortcut_open(Shortcut *self, PyObject *const *args, Py_ssize_t count)
{
    int fit = count == JOINED && PyUnicode_CheckExact(args[MODE]) && PyCallable_Check(args[BEGIN]);
    for (int number = MESSAGES; fit && number <= FUTURES; number++)
        fit = PyList_CheckExact(args[number]);
    if (!fit)
        return PyErr_Format(PyExc_TypeError, "open needs a mode, four lists and a function");
    self->turns++;
    for (int number = 0; number < JOINED; number++)
        Py_XSETREF(self->joined[number], Py_NewRef(args[number]));
    Py_RETURN_NONE;
}

static int same(PyObject *one, PyObject *other)
{
    if (one == other)
        return one != NULL;
    if (one == NULL || other == NULL || !PyUnicode_CheckExact(one) || !PyUnicode_CheckExact(other))
        return 0;
    return PyUnicode_GET_LENGTH(one) == PyUnicode_GET_LENGTH(other) && PyUnicode_Compare(one, other) == 0;
}

static int is_like(const Shortcut *self, PyObject *message, const Model *model)
{
    return model->common != NULL && model->flag == field(self, message, FLAG) &&
           same(model->topic, field(self, message, TOPIC)) && same(model->tags, field(self, message, TAGS));
}

/* Where the model of the message is, which `known` says, or may be put: free, or else the first of its neighbours.
   NULL: it can have none. */
static Model *model_of(Shortcut *self, PyObject *message, int *known)
{
    PyObject *topic = field(self, message, TOPIC), *tags = field(self, message, TAGS);
    *known = 0;
    if (!PyUnicode_CheckExact(topic) || !(tags == Py_None || PyUnicode_CheckExact(tags)) ||
        !PyLong_CheckExact(field(self, message, FLAG)))
        return NULL;
    size_t place = (size_t)PyObject_Hash(topic) ^ (tags == Py_None ? 0 : 31 * (size_t)PyObject_Hash(tags));
    for (size_t next = 0; next < NEIGHBOURS; next++) {
        Model *model = &self->models[(place + next) % MODELS];
        *known = is_like(self, message, model);
        if (*known || model->common == NULL)
            return model;
    }
    return &self->models[place % MODELS];
}

static PyObject *shortcut_learn(Shortcut *self, PyObject *args)
{
    PyObject *message, *common;
    long long size;
    if (!PyArg_ParseTuple(args, "OOL:learn", &message, &common, &size))
        return NULL;
    if (!native_has_all_fields(&self->places, message))
        return PyErr_Format(PyExc_TypeError, "the model is no message");
    int known;
    Model *model = model_of(self, message, &known);
    if (model != NULL) {
        Model before = *model;
        *model = (Model){Py_NewRef(field(self, message, TOPIC)), Py_NewRef(field(self, message, TAGS)),
                         Py_NewRef(field(self, message, FLAG)), Py_NewRef(common), size, NULL, 0};
        forget(&before);
    }
    Py_RETURN_NONE;
}

/* An id that needs no look at its characters: a record separates its properties by some of them. */
static int is_plain_id(PyObject *id)
{
    if (!PyUnicode_CheckExact(id) || PyUnicode_GET_LENGTH(id) != ID_DIGITS || !PyUnicode_IS_ASCII(id))
        return 0;
    const Py_UCS1 *digits = PyUnicode_1BYTE_DATA(id);
    int plain = 1;
    for (int place = 0; place < ID_DIGITS; place++)
        plain &= Py_ISALNUM(digits[place]) != 0;
    return plain;
}

/* What the message has in common with others when it has nothing but body and id of its own; else NULL. */
static Model *plain(Shortcut *self, PyObject *message)
{
    if (!native_has_all_fields(&self->places, message))
        return NULL;
    PyObject *keys = field(self, message, KEYS), *properties = field(self, message, PROPERTIES);
    if (!PyTuple_CheckExact(keys) || PyTuple_GET_SIZE(keys) || !PyDict_Check(properties) || PyDict_GET_SIZE(properties))
        return NULL;
    PyObject *delay_level = field(self, message, DELAY_LEVEL);
    if (!PyLong_CheckExact(delay_level) || PyObject_IsTrue(delay_level) ||
        field(self, message, DELAY_MS) != Py_None || field(self, message, DELIVER_AT) != Py_None ||
        field(self, message, SHARDING_KEY) != Py_None || field(self, message, DEDUP_ID) != Py_None ||
        field(self, message, WAIT_STORE) != Py_True)
        return NULL;
    PyObject *id = field(self, message, MESSAGE_ID), *body = field(self, message, BODY);
    if (!is_plain_id(id) ||
        !PyBytes_CheckExact(body) || PyBytes_GET_SIZE(body) == 0 || PyBytes_GET_SIZE(body) >= self->body_below)
        return NULL;
    int known;
    Model *model = model_of(self, message, &known);
    return known ? model : NULL;
}

/* All four columns grow or none does: what takes columns for equally long would break the producer. */
static int join(Shortcut *self, PyObject *const values[])
{
    for (int number = MESSAGES; number <= FUTURES; number++) {
        if (PyList_Append(self->joined[number], values[number]) == 0)
            continue;
        while (--number >= MESSAGES) {
            Py_ssize_t end = PyList_GET_SIZE(self->joined[number]);
            PyList_SetSlice(self->joined[number], end - 1, end, NULL);
        }
        return -1;
    }
    return 0;
}

static int has_room(const Shortcut *self, long long size)
{
    return self->tally->bytes + size + self->call_bytes <= self->max_bytes;
}

/* A new reference to the number of this size. */
static PyObject *number_of(Model *model, long long size)
{
    if (model->last_number == NULL || size != model->last_size) {
        PyObject *number = PyLong_FromLongLong(size);
        if (number == NULL)
            return NULL;
        model->last_size = size;
        Py_XSETREF(model->last_number, number);
    }
    return Py_NewRef(model->last_number);
}

/* The columns' first message comes; -1 with an error where nobody would send it. */
static int begin(const Shortcut *self)
{
    PyObject *function = Py_NewRef(self->joined[BEGIN]);
    PyObject *done = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *take_like(Shortcut *self, PyObject *message, PyObject *common, PyObject *size_number, long long size)
{
    unsigned long long turns = self->turns;
    /* its arguments are the same dict each time: functools.partial copies it, a third of what a future costs */
    PyObject *new_future = Py_NewRef(self->new_future), *arguments = Py_NewRef(self->arguments); /* it may be made anew */
    PyObject *future = PyObject_Call(new_future, self->nothing, arguments);
    Py_DECREF(new_future);
    Py_DECREF(arguments);
    if (future != NULL && turns == self->turns && PyList_GET_SIZE(self->joined[MESSAGES]) == 0 && begin(self) < 0)
        Py_CLEAR(future);
    if (future != NULL && (turns != self->turns || !has_room(self, size))) {
        /* garbage went, and something of it used this producer */
        Py_SETREF(future, Py_NewRef(Py_None));
    } else if (future != NULL) {
        PyObject *const values[] = {NULL, message, common, size_number, future};
        if (join(self, values) < 0)
            Py_CLEAR(future);
        else
            self->tally->bytes += size + self->call_bytes, self->tally->calls += 1;
    }
    return future;
}

static PyObject *shortcut_take(Shortcut *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "take needs a message and a mode, not %zd arguments", count);
    PyObject *message = args[0], *mode = args[1];
    Model *model = same(mode, self->joined[MODE]) ? plain(self, message) : NULL;
    long long size = model == NULL ? 0 : model->size + PyBytes_GET_SIZE(field(self, message, BODY));
    if (model == NULL || !has_room(self, size))
        Py_RETURN_NONE;
    /* while the future is made, another may take the model's place */
    PyObject *common = Py_NewRef(model->common), *size_number = number_of(model, size);
    PyObject *future = size_number == NULL ? NULL : take_like(self, message, common, size_number, size);
    Py_XDECREF(size_number);
    Py_DECREF(common);
    return future;
}

static PyMethodDef shortcut_methods[] = {
    {"open", (PyCFunction)(void (*)(void))shortcut_open, METH_FASTCALL, "From now on messages of this mode join these columns; before the first one the function is called."},
    {"learn", (PyCFunction)shortcut_learn, METH_VARARGS, "From now on messages like this one are taken."},
    {"close", (PyCFunction)shortcut_close, METH_NOARGS, "From now on every message is declined."},
    {"take", (PyCFunction)(void (*)(void))shortcut_take, METH_FASTCALL, "The future of a message; None declines it."},
    {NULL},
};

static PyType_Slot shortcut_slots[] = {
    {Py_tp_init, shortcut_init},   {Py_tp_dealloc, native_free},      {Py_tp_traverse, shortcut_traverse},
    {Py_tp_clear, shortcut_clear}, {Py_tp_methods, shortcut_methods}, {0, NULL},
};

PyType_Spec native_shortcut = {
    "dejamq.native._native.Shortcut", sizeof(Shortcut), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, shortcut_slots,
};
