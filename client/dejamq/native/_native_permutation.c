/* Which objects of a list are one object, and lists put in that order, without a look at what is in them. What waits
   behind a flood is in no cache any more: to touch a message and its future is what it costs to put them in another
   order, and lists of Python touch all that they take and leave. As order.py does it.
   Earned when it was made: 0.80 us for a message of a flood over 20 topics instead of 0.92, 0.92 over 200 instead of 1.08
   (producer_cost.py --topics, a deep flood). */

#include "_native.h"

#include <stdint.h>

PyObject *native_stretches(PyObject *Py_UNUSED(module), PyObject *objects)
{
    if (!PyList_CheckExact(objects))
        return PyErr_Format(PyExc_TypeError, "stretches are those of a list, not of a %s", Py_TYPE(objects)->tp_name);
    PyObject *found = PyList_New(0);
    Py_ssize_t end = 0;
    while (found != NULL && end < PyList_GET_SIZE(objects)) {
        PyObject *object = Py_NewRef(PyList_GET_ITEM(objects, end));
        Py_ssize_t begin = end++;
        while (end < PyList_GET_SIZE(objects) && PyList_GET_ITEM(objects, end) == object)
            end++;
        PyObject *stretch = Py_BuildValue("(Nn)", object, end - begin);
        if (stretch == NULL || PyList_Append(found, stretch) < 0)
            Py_CLEAR(found);
        Py_XDECREF(stretch);
    }
    return found;
}

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    uint32_t *places;
} Permutation;

/* Different objects, each with its number by when it came first. A table that is never more than half full. */
typedef struct {
    PyObject *object; /* borrowed; NULL: nothing is here */
    uint32_t number;
} Entry;

typedef struct {
    Entry *entries;
    size_t mask;
    uint32_t known;
} Numbers;

static Entry *entry_of(const Numbers *numbers, const PyObject *object)
{
    size_t at = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 20; /* Fibonacci hashing */
    while (numbers->entries[at & numbers->mask].object != NULL && numbers->entries[at & numbers->mask].object != object)
        at++;
    return &numbers->entries[at & numbers->mask];
}

static int widen(Numbers *numbers)
{
    Numbers wider = {NULL, numbers->entries == NULL ? 255 : 4 * numbers->mask + 3, numbers->known};
    wider.entries = PyMem_Calloc(wider.mask + 1, sizeof(Entry));
    if (wider.entries == NULL)
        return -1;
    for (size_t at = 0; numbers->entries != NULL && at <= numbers->mask; at++)
        if (numbers->entries[at].object != NULL)
            *entry_of(&wider, numbers->entries[at].object) = numbers->entries[at];
    PyMem_Free(numbers->entries);
    *numbers = wider;
    return 0;
}

/* The number of each object. */
static int number(PyObject *objects, uint32_t *of_each, Numbers *numbers)
{
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(objects); index++) {
        if (numbers->known >= numbers->mask / 2 && widen(numbers) < 0)
            return -1;
        Entry *entry = entry_of(numbers, PyList_GET_ITEM(objects, index));
        if (entry->object == NULL)
            *entry = (Entry){PyList_GET_ITEM(objects, index), numbers->known++};
        of_each[index] = entry->number;
    }
    return 0;
}

/* Counting sort: from the number of each to their places. */
static int sort(const uint32_t *of_each, Py_ssize_t count, uint32_t known, uint32_t *places)
{
    uint32_t *next = PyMem_Calloc((size_t)known + 1, sizeof(uint32_t));
    if (next == NULL)
        return -1;
    for (Py_ssize_t index = 0; index < count; index++)
        next[of_each[index] + 1]++;
    for (uint32_t one = 0; one < known; one++)
        next[one + 1] += next[one];
    for (Py_ssize_t index = 0; index < count; index++)
        places[next[of_each[index]]++] = (uint32_t)index;
    PyMem_Free(next);
    return 0;
}

static PyObject *order_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"objects", NULL};
    PyObject *objects;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Permutation", names, &PyList_Type, &objects))
        return NULL;
    Permutation *self = (Permutation *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->count = PyList_GET_SIZE(objects);
    Numbers numbers = {NULL, 0, 0};
    uint32_t *of_each = self->count <= UINT32_MAX ? PyMem_New(uint32_t, self->count) : NULL;
    self->places = PyMem_New(uint32_t, self->count);
    int made = of_each != NULL && self->places != NULL && number(objects, of_each, &numbers) == 0 &&
               sort(of_each, self->count, numbers.known, self->places) == 0;
    PyMem_Free(numbers.entries);
    PyMem_Free(of_each);
    if (made)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void order_dealloc(Permutation *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->places);
    type->tp_free(self);
    Py_DECREF(type);
}

/* New lists, still empty of objects, that end there. */
static PyObject *lists_of(const Permutation *self, PyObject *ends)
{
    PyObject *lists = native_empty_list(PyList_GET_SIZE(ends));
    Py_ssize_t begin = 0;
    for (Py_ssize_t part = 0; lists != NULL && part < PyList_GET_SIZE(lists); part++) {
        /* garbage takes maybe some of the ends with it */
        Py_ssize_t end = part < PyList_GET_SIZE(ends) ? PyLong_AsSsize_t(PyList_GET_ITEM(ends, part)) : -1;
        PyObject *list = begin <= end && end <= self->count ? native_empty_list(end - begin) : NULL;
        if (list == NULL)
            Py_CLEAR(lists);
        else
            PyList_SET_ITEM(lists, part, list);
        begin = end;
    }
    if (lists != NULL && begin == self->count)
        return lists;
    Py_XDECREF(lists);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the last list ends with the last object");
}

/* How many the columns hold; -1: one is no list. */
static Py_ssize_t held(PyObject *columns)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(columns); index++) {
        if (!PyList_CheckExact(PyList_GET_ITEM(columns, index)))
            return -1;
        count += PyList_GET_SIZE(PyList_GET_ITEM(columns, index));
    }
    return count;
}

/* Empties the columns, one behind the other. How many that were: fewer than were held where one came twice. */
static Py_ssize_t take_all(PyObject *columns, PyObject **objects)
{
    Py_ssize_t taken = 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(columns); index++) {
        PyListObject *column = (PyListObject *)PyList_GET_ITEM(columns, index);
        Py_ssize_t count = Py_SIZE(column);
        Py_SET_SIZE(column, 0); /* it keeps its room, and owns none of them any more */
        if (count > 0)
            memcpy(objects + taken, column->ob_item, (size_t)count * sizeof(PyObject *));
        taken += count;
    }
    return taken;
}

static void hand_out(const Permutation *self, PyObject **objects, PyObject *lists)
{
    const uint32_t *place = self->places;
    for (Py_ssize_t part = 0; part < PyList_GET_SIZE(lists); part++) {
        PyObject *list = PyList_GET_ITEM(lists, part);
        for (Py_ssize_t index = 0; index < PyList_GET_SIZE(list); index++)
            PyList_SET_ITEM(list, index, objects[*place++]);
        PyObject_GC_Track(list);
    }
    PyObject_GC_Track(lists);
}

static PyObject *order_deal(Permutation *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "deal needs a list of columns and a list of ends");
    PyObject *lists = lists_of(self, args[1]);
    if (lists == NULL)
        return NULL;
    PyObject **objects = PyMem_New(PyObject *, self->count);
    Py_ssize_t taken = -1;
    if (objects == NULL)
        PyErr_NoMemory();
    else if (held(args[0]) != self->count)
        PyErr_Format(PyExc_ValueError, "the columns do not hold %zd objects", self->count);
    else if ((taken = take_all(args[0], objects)) < self->count)
        PyErr_Format(PyExc_ValueError, "a column comes twice");
    else
        hand_out(self, objects, lists);
    for (Py_ssize_t index = 0; taken < self->count && index < taken; index++)
        Py_DECREF(objects[index]);
    PyMem_Free(objects);
    if (taken == self->count)
        return lists;
    Py_DECREF(lists);
    return NULL;
}

static PyMethodDef order_methods[] = {
    {"deal", (PyCFunction)(void (*)(void))order_deal, METH_FASTCALL,
     "What the columns hold, one behind the other, in this order: a list up to each end. The columns are empty then."},
    {NULL},
};

static PyType_Slot order_slots[] = {
    {Py_tp_new, order_new}, {Py_tp_dealloc, order_dealloc}, {Py_tp_methods, order_methods}, {0, NULL},
};

PyType_Spec native_order = {"dejamq.native._native.Permutation", sizeof(Permutation), 0, Py_TPFLAGS_DEFAULT, order_slots};
