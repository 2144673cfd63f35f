/* Runs of records: what stands where, found in one pass. Layout: record.py.

   Only good news, as few.py: of what is not plainly fit nothing is said here, and the columns of numpy in run.py do the
   same, find the record at fault and have the words for it. V2 records and IPv6 hosts are read by them alone.
   Earned when it was made: 3 us for a run of 64 instead of 24, a tenth of what a polled message cost its consumer. */

#include "_native.h"
#include "_native_record.h"

enum { OVERHEAD = 91 };
enum { WIDE_HOSTS = 0x30, MAX_TOPIC_SIZE = 127, MAX_PROPERTIES_SIZE = 32767 };
static const uint32_t MAGIC_V1 = 0xDAA320A7;

enum { POSITION, TOPIC_AT, TOPIC_SIZE, PROPERTIES_AT, PROPERTIES_SIZE, COLUMNS };

/* Whether a plain record of this size begins at `at`; then its line of the columns and its header are filled. */
static int scan_one(const uint8_t *data, int64_t at, int64_t size, int64_t *const columns[COLUMNS], Py_ssize_t index,
                    uint8_t *header)
{
    const uint8_t *record = data + at;
    int64_t body_size = (int32_t)number_at(record + BODY_SIZE_AT);
    if (number_at(record + TOTAL_SIZE_AT) != size || number_at(record + MAGIC_AT) != MAGIC_V1 ||
        number_at(record + SYS_FLAG_AT) & WIDE_HOSTS || body_size < 0 || body_size > size - OVERHEAD)
        return 0;
    int64_t end = at + size, topic_at = at + HEADER_SIZE + body_size + 1, topic_size = data[topic_at - 1];
    int64_t properties_at = topic_at + topic_size + 2;
    if (topic_size > MAX_TOPIC_SIZE || properties_at > end)
        return 0;
    int64_t properties_size = (int64_t)data[properties_at - 2] << 8 | data[properties_at - 1];
    if (properties_at + properties_size != end || properties_size > MAX_PROPERTIES_SIZE)
        return 0;
    columns[POSITION][index] = at;
    columns[TOPIC_AT][index] = topic_at, columns[TOPIC_SIZE][index] = topic_size;
    columns[PROPERTIES_AT][index] = properties_at, columns[PROPERTIES_SIZE][index] = properties_size;
    memcpy(header, record, HEADER_SIZE);
    return 1;
}

static int scan_all(const Py_buffer *data, const Py_buffer *sizes, char *target)
{
    Py_ssize_t count = sizes->len / (Py_ssize_t)sizeof(int64_t);
    const int64_t *size = sizes->buf;
    int64_t *columns[COLUMNS], at = 0;
    for (int column = 0; column < COLUMNS; column++)
        columns[column] = (int64_t *)target + column * count;
    uint8_t *headers = (uint8_t *)((int64_t *)target + COLUMNS * count);
    for (Py_ssize_t index = 0; index < count; index++) {
        if (size[index] < OVERHEAD || size[index] > data->len - at ||
            !scan_one(data->buf, at, size[index], columns, index, headers + index * HEADER_SIZE))
            return 0;
        at += size[index];
    }
    return count > 0 && at == data->len;
}

static PyObject *scan(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Py_buffer data, sizes;
    if (given != 2)
        return PyErr_Format(PyExc_TypeError, "scan needs data and sizes, not %zd arguments", given);
    if (!native_read_both(args, &data, &sizes))
        return NULL;
    Py_ssize_t count = sizes.len / (Py_ssize_t)sizeof(int64_t);
    PyObject *found = PyByteArray_FromStringAndSize(NULL, count * (COLUMNS * (Py_ssize_t)sizeof(int64_t) + HEADER_SIZE));
    if (found != NULL && !scan_all(&data, &sizes, PyByteArray_AS_STRING(found)))
        Py_SETREF(found, Py_NewRef(Py_None));
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&data);
    return found;
}

static PyMethodDef methods[] = {
    {"announced", (PyCFunction)(void (*)(void))native_announced, METH_FASTCALL,
     "announced(positions, topic_at, topic_size, properties_at, properties_size, index, codes, data, queues, most_body)\n"
     "--\n\nWhether the records at these places (int64) are of the queues and have the tags codes announced for them\n"
     "(32 bits), have bodies of at most so many bytes and are no transaction's; False: not plainly so."},
    {"crcs_fit", (PyCFunction)(void (*)(void))native_crcs_fit, METH_FASTCALL,
     "crcs_fit(data, positions, crc32)\n--\n\n"
     "Whether the bodies of the records that begin at these positions (int64) have the CRCs that their headers say;\n"
     "False: not plainly so."},
    {"counted", (PyCFunction)(void (*)(void))native_counted, METH_FASTCALL,
     "counted(first, end)\n--\n\nA JSON list of these numbers."},
    {"numbers", (PyCFunction)(void (*)(void))native_numbers, METH_FASTCALL,
     "numbers(column, first, end)\n--\n\nA JSON list of these elements of a column (int64)."},
    {"keys", (PyCFunction)(void (*)(void))native_keys, METH_FASTCALL,
     "keys(data, properties_at, first, end)\n--\n\n"
     "A JSON list of the UNIQ_KEYs with which the properties at these places (int64) begin; None: not plainly so."},
    {"id_hashes", (PyCFunction)(void (*)(void))native_id_hashes, METH_FASTCALL,
     "id_hashes(data, sizes, seed)\n--\n\n"
     "For each record of these sizes (uint32) the hash (uint64) of the id by which it is known when it is sent again,\n"
     "0 without one; None: these are no such records."},
    {"join", (PyCFunction)(void (*)(void))native_join, METH_FASTCALL,
     "join(alike, bodies, ids, crc32, queue_ids, born_ms)\n--\n\n"
     "Records of these parts, with CRCs and queue ids (int32) in their headers; None: they are not plainly so.\n"
     "alike: header, what stands before the id, what behind it, and how many side by side have them."},
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL,
     "scan(data, sizes)\n--\n\nColumns and headers of records of these sizes (int64) in data; None: it is not plainly so."},
    {NULL},
};

static int native_exec(PyObject *module)
{
    NativeState *state = PyModule_GetState(module);
    state->window = (PyTypeObject *)PyType_FromModuleAndSpec(module, &native_window, NULL);
    if (state->window == NULL)
        return -1;
    PyObject *recent_ids = PyType_FromModuleAndSpec(module, &native_recent_ids, NULL);
    int failed = recent_ids == NULL || PyModule_AddType(module, (PyTypeObject *)recent_ids) < 0;
    Py_XDECREF(recent_ids);
    return failed ? -1 : 0;
}

static int native_traverse(PyObject *module, visitproc visit, void *arg)
{
    NativeState *state = PyModule_GetState(module);
    Py_VISIT(state->window);
    return 0;
}

static int native_clear(PyObject *module)
{
    NativeState *state = PyModule_GetState(module);
    Py_CLEAR(state->window);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, native_exec}, {0, NULL}};

static struct PyModuleDef native = {
    PyModuleDef_HEAD_INIT, "_native", "Runs of records: what stands where, and their making.", sizeof(NativeState),
    methods, slots, native_traverse, native_clear, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&native);
}
