/* Runs of records: what stands where, found in one pass, and their making from parts, by one copy. Layout: record.py.

   Only good news, as few.py: of what is not plainly fit nothing is said here, and the columns of numpy in run.py and
   run_records.py do the same, find the record at fault and have the words for it. V2 records and IPv6 hosts are read by
   them alone.
   Earned when it was made: scan, 3 us for a run of 64 instead of 24, a tenth of what a polled message cost its consumer;
   join, 1.8 us for a message of 100 bytes at its producer instead of 2.0. */

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

/* What a record is made of, one list each: one behind the other they are the record, but for numbers in its header. */
enum { HEADERS, BODIES, BEFORE_IDS, IDS, RESTS, PARTS };
enum { CRC32 = PARTS, QUEUE_IDS, BORN, JOIN_ARGUMENTS };

static void put_number(uint8_t *at, uint64_t number, int bytes)
{
    while (bytes--)
        at[bytes] = (uint8_t)number, number >>= 8;
}

/* The bytes of one part of one record, which are its owner's; NULL: it is not plainly so. */
static const char *part_of(PyObject *const *lists, int part, Py_ssize_t index, Py_ssize_t *size)
{
    PyObject *one = PyList_GET_ITEM(lists[part], index);
    if (part == IDS) {
        *size = PyUnicode_CheckExact(one) && PyUnicode_IS_COMPACT_ASCII(one) ? PyUnicode_GET_LENGTH(one) : -1;
        return *size < 0 ? NULL : (const char *)PyUnicode_1BYTE_DATA(one);
    }
    *size = PyBytes_CheckExact(one) ? PyBytes_GET_SIZE(one) : -1;
    return *size < 0 || (part == HEADERS && *size != HEADER_SIZE) ? NULL : PyBytes_AS_STRING(one);
}

/* Bytes of all records together; -1: they are not plainly so. */
static int64_t size_of_all(PyObject *const *lists, Py_ssize_t count)
{
    int64_t all = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t record = 0;
        for (int part = 0; part < PARTS; part++) {
            Py_ssize_t size;
            if (part_of(lists, part, index, &size) == NULL)
                return -1;
            record += size;
        }
        if (record > INT32_MAX)
            return -1;
        all += record;
    }
    return all;
}

static void join_all(PyObject *const *lists, Py_ssize_t count, const uint32_t *crcs, const int32_t *queue_ids,
                     int64_t born, uint8_t *target)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        uint8_t *record = target;
        Py_ssize_t size, body_size = 0;
        for (int part = 0; part < PARTS; part++, target += size) {
            const char *bytes = part_of(lists, part, index, &size);
            memcpy(target, bytes, (size_t)size);
            body_size = part == BODIES ? size : body_size;
        }
        put_number(record + TOTAL_SIZE_AT, (uint64_t)(target - record), 4);
        put_number(record + BODY_CRC_AT, crcs[index] & 0x7FFFFFFF, 4);
        put_number(record + QUEUE_ID_AT, (uint32_t)queue_ids[index], 4);
        put_number(record + BORN_AT, (uint64_t)born, 8);
        put_number(record + BODY_SIZE_AT, (uint64_t)body_size, 4);
    }
}

/* Whether crc32 has answered for each body; if not, an error is set. It may let other threads run. */
static int read_crcs(PyObject *bodies, PyObject *crc32, uint32_t *crcs, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count && index < PyList_GET_SIZE(bodies); index++) {
        PyObject *body = Py_NewRef(PyList_GET_ITEM(bodies, index));
        unsigned long crc;
        int answered = native_crc(crc32, body, &crc);
        Py_DECREF(body);
        if (!answered)
            return 0;
        crcs[index] = (uint32_t)crc;
    }
    return 1;
}

static PyObject *join_checked(PyObject *const *args, const int32_t *queue_ids, const uint32_t *crcs, Py_ssize_t count)
{
    int64_t born = PyLong_AsLongLong(args[BORN]);
    if (born == -1 && PyErr_Occurred())
        return NULL;
    int fit = 1;
    for (int part = 0; part < PARTS; part++)
        fit = fit && PyList_CheckExact(args[part]) && PyList_GET_SIZE(args[part]) == count;
    int64_t size = fit ? size_of_all(args, count) : -1;
    if (size < 0)
        Py_RETURN_NONE;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (joined != NULL)
        join_all(args, count, crcs, queue_ids, born, (uint8_t *)PyBytes_AS_STRING(joined));
    return joined;
}

static PyObject *join(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Py_buffer queue_ids;
    if (given != JOIN_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "join needs %d arguments, not %zd", JOIN_ARGUMENTS, given);
    if (!PyList_CheckExact(args[BODIES]))
        Py_RETURN_NONE;
    if (PyObject_GetBuffer(args[QUEUE_IDS], &queue_ids, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t count = queue_ids.len / (Py_ssize_t)sizeof(int32_t);
    uint32_t *crcs = PyMem_Calloc((size_t)count, sizeof *crcs);
    PyObject *joined = NULL;
    if (crcs == NULL)
        PyErr_NoMemory();
    else if (read_crcs(args[BODIES], args[CRC32], crcs, count))
        joined = join_checked(args, queue_ids.buf, crcs, count);
    PyMem_Free(crcs);
    PyBuffer_Release(&queue_ids);
    return joined;
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
    {"join", (PyCFunction)(void (*)(void))join, METH_FASTCALL,
     "join(headers, bodies, before_ids, ids, rests, crc32, queue_ids, born_ms)\n--\n\n"
     "Records of these parts, with CRCs and queue ids (int32) in their headers; None: they are not plainly so."},
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL,
     "scan(data, sizes)\n--\n\nColumns and headers of records of these sizes (int64) in data; None: it is not plainly so."},
    {NULL},
};

static int native_exec(PyObject *module)
{
    NativeState *state = PyModule_GetState(module);
    state->window = (PyTypeObject *)PyType_FromModuleAndSpec(module, &native_window, NULL);
    return state->window == NULL ? -1 : 0;
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
