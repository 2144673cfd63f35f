/* What the files of the compiled module share. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { ID_DIGITS = 32 }; /* of an id that no program chose */

/* Fields of a message, and where in memory objects of its type hold them. */
enum {
    TOPIC, BODY, TAGS, KEYS, PROPERTIES, DELAY_LEVEL, DELAY_MS, DELIVER_AT, SHARDING_KEY, FLAG, WAIT_STORE, MESSAGE_ID,
    DEDUP_ID, FIELDS
};

typedef struct {
    PyTypeObject *type; /* NULL: of none yet */
    Py_ssize_t at[FIELDS];
} Places;

/* -1 with an error where it is no type of messages. */
int native_find_places(Places *places, PyTypeObject *type);
/* Where objects of the type hold this field; -1 with an error where they hold none. */
Py_ssize_t native_slot(PyTypeObject *type, const char *name);
int native_has_all_fields(const Places *places, PyObject *message);

/* Borrowed; NULL for a field that was never set. */
static inline PyObject *native_field(const Places *places, PyObject *message, int number)
{
    return *(PyObject **)((char *)message + places->at[number]);
}

/* How much a producer has taken on. The base of backlog.Backlog, which counts in it too. */
typedef struct {
    PyObject_HEAD
    long long bytes, calls;
} Tally;

/* What the module knows. */
typedef struct {
    PyTypeObject *tally;
} NativeState;

/* A list without its objects. Garbage may go while other objects are made, and what looks at all objects then must not
   find it: it is tracked once it is filled. */
static inline PyObject *native_empty_list(Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    if (list != NULL)
        PyObject_GC_UnTrack(list);
    return list;
}

/* Of objects that the garbage collector follows. */
void native_free(PyObject *self);

/* The objects of a list as they stand, and how often each does so side by side. */
PyObject *native_stretches(PyObject *module, PyObject *objects);

extern PyType_Spec native_shortcut, native_order, native_id_source, native_message_check, native_layout;
extern PyType_Spec native_body_property, native_id_property;
