/* The records of a run made from their parts, by one copy: what the SDK's run_records.py does by columns of numpy for
   whatever is not plainly fit. Layout: record.py.

   Earned when it was made: 1.8 us for a message of 100 bytes at its producer instead of 2.0; with what is alike said once
   for all that have it, and CRCs asked for here, 0.11 to 0.15 us for a record of a flood instead of 0.19. */

#include "_native.h"
#include "_native_record.h"

enum { ALIKE, BODIES, IDS, CRC32, QUEUE_IDS, BORN, ARGUMENTS };

typedef struct {
    const char *bytes;
    Py_ssize_t size;
} Part;

/* What records that stand side by side have in common. */
typedef struct {
    Part header, before_id, rest;
    Py_ssize_t count;
} Common;

/* Everything here is borrowed from the arguments: from read_commons on, nothing may run that could change those. */
typedef struct {
    PyObject *bodies, *ids;
    const int32_t *queue_ids;
    uint32_t *crcs;
    Py_ssize_t count;
    Common *commons;
    Py_ssize_t common_count;
    int64_t born;
} Run;

static void put_number(uint8_t *at, uint64_t number, int bytes)
{
    while (bytes--)
        at[bytes] = (uint8_t)number, number >>= 8;
}

static uint8_t *put_part(uint8_t *at, Part part)
{
    memcpy(at, part.bytes, (size_t)part.size);
    return at + part.size;
}

/* Whether it is plainly so, as in all that follow. */
static int read_bytes(PyObject *object, Part *part)
{
    if (!PyBytes_CheckExact(object))
        return 0;
    *part = (Part){PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    return 1;
}

static int read_text(PyObject *object, Part *part)
{
    if (!PyUnicode_CheckExact(object) || !PyUnicode_IS_COMPACT_ASCII(object))
        return 0;
    *part = (Part){(const char *)PyUnicode_1BYTE_DATA(object), PyUnicode_GET_LENGTH(object)};
    return 1;
}

static int read_common(PyObject *alike, Common *common)
{
    if (!PyTuple_CheckExact(alike) || PyTuple_GET_SIZE(alike) != 4 || !PyLong_CheckExact(PyTuple_GET_ITEM(alike, 3)) ||
        !read_bytes(PyTuple_GET_ITEM(alike, 0), &common->header) || common->header.size != HEADER_SIZE ||
        !read_bytes(PyTuple_GET_ITEM(alike, 1), &common->before_id) ||
        !read_bytes(PyTuple_GET_ITEM(alike, 2), &common->rest))
        return 0;
    common->count = PyLong_AsSsize_t(PyTuple_GET_ITEM(alike, 3));
    if (common->count == -1)
        PyErr_Clear();
    return common->count >= 0;
}

static int read_commons(Run *run, PyObject *alike)
{
    Py_ssize_t left = run->count;
    for (run->common_count = 0; run->common_count < PyList_GET_SIZE(alike); run->common_count++) {
        Common *common = &run->commons[run->common_count];
        if (!read_common(PyList_GET_ITEM(alike, run->common_count), common) || common->count > left)
            return 0;
        left -= common->count;
    }
    return left == 0 && PyList_GET_SIZE(run->bodies) == run->count && PyList_GET_SIZE(run->ids) == run->count;
}

/* Bytes of all records together; -1: they are not plainly so. */
static int64_t size_of_all(const Run *run)
{
    int64_t all = 0;
    Py_ssize_t index = 0;
    for (const Common *common = run->commons; common < run->commons + run->common_count; common++) {
        int64_t alike = common->header.size + common->before_id.size + common->rest.size;
        for (Py_ssize_t end = index + common->count; index < end; index++) {
            Part body, id;
            if (!read_bytes(PyList_GET_ITEM(run->bodies, index), &body) ||
                !read_text(PyList_GET_ITEM(run->ids, index), &id) || alike + body.size + id.size > INT32_MAX)
                return -1;
            all += alike + body.size + id.size;
        }
    }
    return all;
}

static void join_all(const Run *run, uint8_t *target)
{
    Py_ssize_t index = 0;
    for (const Common *common = run->commons; common < run->commons + run->common_count; common++)
        for (Py_ssize_t end = index + common->count; index < end; index++) {
            uint8_t *record = target;
            Part body = {NULL, 0}, id = {NULL, 0};
            read_bytes(PyList_GET_ITEM(run->bodies, index), &body);
            read_text(PyList_GET_ITEM(run->ids, index), &id);
            target = put_part(put_part(target, common->header), body);
            target = put_part(put_part(put_part(target, common->before_id), id), common->rest);
            put_number(record + TOTAL_SIZE_AT, (uint64_t)(target - record), 4);
            put_number(record + BODY_CRC_AT, run->crcs[index] & 0x7FFFFFFF, 4);
            put_number(record + QUEUE_ID_AT, (uint32_t)run->queue_ids[index], 4);
            put_number(record + BORN_AT, (uint64_t)run->born, 8);
            put_number(record + BODY_SIZE_AT, (uint64_t)body.size, 4);
        }
}

/* Whether crc32 has answered for each body; if not, an error is set. It may let other threads run. */
static int read_crcs(Run *run, PyObject *crc32)
{
    for (Py_ssize_t index = 0; index < run->count && index < PyList_GET_SIZE(run->bodies); index++) {
        PyObject *body = Py_NewRef(PyList_GET_ITEM(run->bodies, index));
        unsigned long crc = 0;
        int answered = native_crc(crc32, body, &crc);
        Py_DECREF(body);
        if (!answered)
            return 0;
        run->crcs[index] = (uint32_t)crc;
    }
    return 1;
}

static PyObject *joined(Run *run, PyObject *const *args)
{
    run->born = PyLong_AsLongLong(args[BORN]);
    if ((run->born == -1 && PyErr_Occurred()) || !read_crcs(run, args[CRC32]))
        return NULL;
    run->commons = PyMem_New(Common, PyList_GET_SIZE(args[ALIKE]));
    if (run->commons == NULL)
        return PyErr_NoMemory();
    int64_t size = read_commons(run, args[ALIKE]) ? size_of_all(run) : -1;
    if (size < 0)
        Py_RETURN_NONE;
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (records != NULL)
        join_all(run, (uint8_t *)PyBytes_AS_STRING(records));
    return records;
}

PyObject *native_join(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "join needs %d arguments, not %zd", ARGUMENTS, given);
    if (!PyList_CheckExact(args[ALIKE]) || !PyList_CheckExact(args[BODIES]) || !PyList_CheckExact(args[IDS]))
        Py_RETURN_NONE;
    Py_buffer queue_ids;
    if (PyObject_GetBuffer(args[QUEUE_IDS], &queue_ids, PyBUF_SIMPLE) < 0)
        return NULL;
    Run run = {.bodies = args[BODIES], .ids = args[IDS], .queue_ids = queue_ids.buf};
    run.count = queue_ids.len / (Py_ssize_t)sizeof(int32_t);
    run.crcs = PyMem_Calloc((size_t)run.count, sizeof *run.crcs);
    PyObject *answer = run.crcs == NULL ? PyErr_NoMemory() : joined(&run, args);
    PyMem_Free(run.commons);
    PyMem_Free(run.crcs);
    PyBuffer_Release(&queue_ids);
    return answer;
}
