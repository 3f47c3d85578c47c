/* _fast.c: messages of dtl.Comm, with few instructions between Python and dtl_comm_send, over
 * Python's stable interface.
 *
 * dtl/comm.py derives Comm from the type Messages. Objects without the buffer protocol (device
 * memory) go to methods of the derived class: _send_other, _ssend_other, _recv_other, _isend_other
 * and _irecv_other; IN_PLACE and buffers that do not match to _allreduce_other.
 */
#include "_fast.h"
#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    dtl_comm_t comm;
} messages_t;

/* Function of dtl/error.py that raises dtl.Error: (status, buffer) -> never returns. */
static PyObject *raise_error;
/* Type of the buffers of requests. */
static PyTypeObject *buffer_type;
/* Base of dtl.Request. */
static PyTypeObject *operation_type;
/* Type of the result of recv: a named tuple (source, tag, size_bytes). */
static PyTypeObject *recv_info;

typedef dtl_status_t send_fn(dtl_comm_t, const void *, uint64_t, dtl_dtype_t, int32_t, int32_t);

/* Arguments of a message: the buffer, and a rank and a tag, which may be absent. */
typedef struct {
    PyObject *buffer;
    int32_t rank;
    int32_t tag;
} arguments_t;

static int integer(PyObject *object, int32_t *out)
{
    const long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred()) {
        return 0;
    }
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%ld: ranks and tags have 32 bits", value);
        return 0;
    }
    *out = (int32_t)value;
    return 1;
}

/* Reads (buffer, rank, tag), by position or by name. Returns 0 with an exception on failure. */
static int parse(PyObject *const *args, Py_ssize_t count, PyObject *names, const char *rank_name,
                 int rank_is_needed, arguments_t *out)
{
    PyObject *found[3] = {NULL, NULL, NULL};
    if (count > 3) {
        PyErr_Format(PyExc_TypeError, "%zd arguments: at most buffer, %s and tag", count,
                     rank_name);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        found[i] = args[i];
    }
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int index = PyUnicode_CompareWithASCIIString(name, "tag") == 0       ? 2
                          : PyUnicode_CompareWithASCIIString(name, rank_name) == 0 ? 1
                          : PyUnicode_CompareWithASCIIString(name, "buffer") == 0  ? 0
                                                                                   : -1;
        if (index < 0 || found[index]) {
            PyErr_Format(PyExc_TypeError, "%R: the arguments are buffer, %s and tag, each once",
                         name, rank_name);
            return 0;
        }
        found[index] = args[count + i];
    }
    if (!found[0] || (rank_is_needed && !found[1])) {
        PyErr_Format(PyExc_TypeError, "%s is missing", found[0] ? rank_name : "buffer");
        return 0;
    }
    out->buffer = found[0];
    return (!found[1] || integer(found[1], &out->rank)) &&
           (!found[2] || integer(found[2], &out->tag));
}

/* Releases the buffer, and raises dtl.Error. The exception keeps a buffer that is still in use. */
static PyObject *fail(dtl_status_t status, Py_buffer *view)
{
    PyObject *result = PyObject_CallFunction(raise_error, "iO", (int)status, view->obj);
    PyBuffer_Release(view);
    Py_XDECREF(result);
    return NULL;
}

static PyObject *send_with(send_fn *function, const char *other, PyObject *self,
                           PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    arguments_t all = {NULL, 0, 0};
    if (!parse(args, count, names, "dest", 1, &all)) {
        return NULL;
    }
    Py_buffer view;
    if (fast_get_buffer(all.buffer, &view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return PyObject_CallMethod(self, other, "Oii", all.buffer, (int)all.rank, (int)all.tag);
    }
    const dtl_dtype_t dtype = fast_dtype_of(&view);
    const dtl_comm_t comm = ((messages_t *)self)->comm;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = function(comm, view.buf, fast_count_of(&view, dtype), dtype, all.rank, all.tag);
    Py_END_ALLOW_THREADS
    if (status != DTL_SUCCESS) {
        return fail(status, &view);
    }
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *messages_send(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names)
{
    return send_with(dtl_comm_send, "_send_other", self, args, count, names);
}

static PyObject *messages_ssend(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                    PyObject *names)
{
    return send_with(dtl_comm_ssend, "_ssend_other", self, args, count, names);
}

/* Returns (source, tag, size_bytes). */
static PyObject *result_of(const dtl_recv_info_t *info)
{
    PyObject *result = PyStructSequence_New(recv_info);
    PyObject *parts[3] = {
        PyLong_FromLong(info->source),
        PyLong_FromLong(info->tag),
        PyLong_FromUnsignedLongLong(info->size_bytes),
    };
    if (!result || !parts[0] || !parts[1] || !parts[2]) {
        Py_XDECREF(result);
        Py_XDECREF(parts[0]);
        Py_XDECREF(parts[1]);
        Py_XDECREF(parts[2]);
        return NULL;
    }
    for (int i = 0; i < 3; ++i) {
        PyStructSequence_SetItem(result, i, parts[i]);
    }
    return result;
}

static PyObject *messages_recv(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                   PyObject *names)
{
    arguments_t all = {NULL, DTL_ANY_SOURCE, DTL_ANY_TAG};
    if (!parse(args, count, names, "source", 0, &all)) {
        return NULL;
    }
    Py_buffer view;
    const int flags = PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE;
    if (fast_get_buffer(all.buffer, &view, flags) != 0) {
        PyErr_Clear();
        return PyObject_CallMethod(self, "_recv_other", "Oii", all.buffer, (int)all.rank,
                                   (int)all.tag);
    }
    const dtl_dtype_t dtype = fast_dtype_of(&view);
    const dtl_comm_t comm = ((messages_t *)self)->comm;
    dtl_recv_info_t info;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = dtl_comm_recv(comm, view.buf, fast_count_of(&view, dtype), dtype, all.rank, all.tag,
                           &info);
    Py_END_ALLOW_THREADS
    if (status != DTL_SUCCESS) {
        return fail(status, &view);
    }
    PyBuffer_Release(&view);
    return result_of(&info);
}

typedef dtl_status_t start_fn(dtl_comm_t, void *, uint64_t, dtl_dtype_t, int32_t, int32_t,
                              dtl_request_t *);

static dtl_status_t isend(dtl_comm_t comm, void *buf, uint64_t count, dtl_dtype_t dtype,
                          int32_t dest, int32_t tag, dtl_request_t *out)
{
    return dtl_comm_isend(comm, buf, count, dtype, dest, tag, out);
}

/* Operation in progress. The library writes the handle into the object, which has the buffers
 * already: no exception of Python between the start and the next line can lose one of them. */
typedef struct {
    PyObject_HEAD
    dtl_request_t request;
    PyObject *buffers;
} operation_t;

/* Starts a message: (operation, buffer, rank, tag). */
static PyObject *start_with(start_fn *function, const char *other, const char *rank_name,
                            PyObject *self, PyObject *const *args, Py_ssize_t count,
                            PyObject *names, int writable)
{
    arguments_t all = {NULL, DTL_ANY_SOURCE, writable ? DTL_ANY_TAG : 0};
    if (count < 1 || !PyObject_TypeCheck(args[0], operation_type)) {
        PyErr_SetString(PyExc_TypeError, "the first argument is a request that is not started");
        return NULL;
    }
    if (!parse(args + 1, count - 1, names, rank_name, !writable, &all)) {
        return NULL;
    }
    PyObject *buffer = PyObject_CallFunction((PyObject *)buffer_type, "Oi", all.buffer, writable);
    if (!buffer) {
        PyErr_Clear();
        return PyObject_CallMethod(self, other, "OOii", args[0], all.buffer, (int)all.rank,
                                   (int)all.tag);
    }
    buffer_t *found = (buffer_t *)buffer;
    operation_t *operation = (operation_t *)args[0];
    PyObject *previous = operation->buffers;
    operation->buffers = buffer;
    Py_XDECREF(previous);
    const dtl_comm_t comm = ((messages_t *)self)->comm;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = function(comm, found->view.buf, found->count, found->dtype, all.rank, all.tag,
                      &operation->request);
    Py_END_ALLOW_THREADS
    if (status != DTL_SUCCESS) {
        return PyObject_CallFunction(raise_error, "iO", (int)status, buffer);
    }
    Py_RETURN_NONE;
}

static PyObject *messages_isend(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    return start_with(isend, "_isend_other", "dest", self, args, count, names, 0);
}

static PyObject *messages_irecv(PyObject *self, PyObject *const *args, Py_ssize_t count,
                                PyObject *names)
{
    return start_with(dtl_comm_irecv, "_irecv_other", "source", self, args, count, names, 1);
}

static int operation_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((operation_t *)self)->buffers);
    return 0;
}

static int operation_clear(PyObject *self)
{
    Py_CLEAR(((operation_t *)self)->buffers);
    return 0;
}

static void operation_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    (void)operation_clear(self);
    fast_free(self);
}

static PyObject *operation_address(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(&((operation_t *)self)->request);
}

static PyMemberDef operation_members[] = {
    {"_number", T_ULONGLONG, offsetof(operation_t, request), 0,
     "Number of the handle; 0 if no operation is in progress."},
    {"_buffers", T_OBJECT, offsetof(operation_t, buffers), 0, "What the operation uses."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef operation_properties[] = {
    {"_address", operation_address, NULL, "Address of the handle.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot operation_slots[] = {
    {Py_tp_doc, "Operation(): an operation in progress, and the buffers that it uses."},
    {Py_tp_members, operation_members},
    {Py_tp_getset, operation_properties},
    {Py_tp_traverse, operation_traverse},
    {Py_tp_clear, operation_clear},
    {Py_tp_dealloc, operation_dealloc},
    {0, NULL},
};

static PyType_Spec operation_spec = {
    "dtl._fast.Operation", sizeof(operation_t), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, operation_slots,
};

/* Gets the buffers of a reduction. Returns 0 without an exception if they are no buffers, or not as
 * many elements of one dtype. */
static int pair_of(PyObject *sbuf, PyObject *rbuf, Py_buffer *send, Py_buffer *receive)
{
    const int flags = PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT;
    if (fast_get_buffer(sbuf, send, flags) != 0) {
        PyErr_Clear();
        return 0;
    }
    if (fast_get_buffer(rbuf, receive, flags | PyBUF_WRITABLE) != 0) {
        PyErr_Clear();
        PyBuffer_Release(send);
        return 0;
    }
    if (send->len == receive->len && fast_dtype_of(send) == fast_dtype_of(receive)) {
        return 1;
    }
    PyBuffer_Release(send);
    PyBuffer_Release(receive);
    return 0;
}

static PyObject *messages_allreduce(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"sbuf", "rbuf", "op", NULL};
    PyObject *sbuf, *rbuf;
    int op = DTL_OP_SUM;
    Py_buffer send, receive;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO|i", names, &sbuf, &rbuf, &op)) {
        return NULL;
    }
    if (!pair_of(sbuf, rbuf, &send, &receive)) {
        return PyObject_CallMethod(self, "_allreduce_other", "OOi", sbuf, rbuf, op);
    }
    const dtl_dtype_t dtype = fast_dtype_of(&send);
    const uint64_t count = fast_count_of(&send, dtype);
    const dtl_comm_t comm = ((messages_t *)self)->comm;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = dtl_comm_allreduce(comm, send.buf, receive.buf, count, dtype, op);
    Py_END_ALLOW_THREADS
    if (status != DTL_SUCCESS) {
        PyObject *result = PyObject_CallFunction(raise_error, "i(OO)", (int)status, sbuf, rbuf);
        Py_XDECREF(result);
    }
    PyBuffer_Release(&send);
    PyBuffer_Release(&receive);
    if (status != DTL_SUCCESS) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Waits for a request: (number, timeout_ns) -> (status, result). */
static PyObject *wait_request(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long number, timeout_ns;
    if (!PyArg_ParseTuple(args, "KK", &number, &timeout_ns)) {
        return NULL;
    }
    const dtl_request_t request = {number};
    dtl_recv_info_t info = {0};
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = dtl_request_wait(request, timeout_ns, &info);
    Py_END_ALLOW_THREADS
    PyObject *result = result_of(&info);
    return result ? Py_BuildValue("iN", (int)status, result) : NULL;
}

/* Tests a request: number -> (status, done, result). */
static PyObject *test_request(PyObject *module, PyObject *object)
{
    (void)module;
    const dtl_request_t request = {PyLong_AsUnsignedLongLong(object)};
    if (PyErr_Occurred()) {
        return NULL;
    }
    dtl_recv_info_t info = {0};
    int32_t done = 0;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = dtl_request_test(request, &done, &info);
    Py_END_ALLOW_THREADS
    PyObject *result = result_of(&info);
    return result ? Py_BuildValue("iiN", (int)status, (int)done, result) : NULL;
}

static PyObject *messages_get_id(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((messages_t *)self)->comm.id);
}

static int messages_set_id(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    const unsigned long long id = value ? PyLong_AsUnsignedLongLong(value) : 0;
    if (id == (unsigned long long)-1 && PyErr_Occurred()) {
        return -1;
    }
    ((messages_t *)self)->comm.id = id;
    return 0;
}

static PyObject *set_error(PyObject *module, PyObject *function)
{
    (void)module;
    Py_XDECREF(raise_error);
    raise_error = Py_NewRef(function);
    Py_RETURN_NONE;
}

static PyMethodDef messages_methods[] = {
    {"send", (PyCFunction)(void (*)(void))messages_send, METH_FASTCALL | METH_KEYWORDS,
     "send(buffer, dest, tag=0)\n\nSends a message. Blocks until the buffer may be reused."},
    {"ssend", (PyCFunction)(void (*)(void))messages_ssend, METH_FASTCALL | METH_KEYWORDS,
     "ssend(buffer, dest, tag=0)\n\n"
     "Sends a message. Blocks until a receive has started to take it."},
    {"recv", (PyCFunction)(void (*)(void))messages_recv, METH_FASTCALL | METH_KEYWORDS,
     "recv(buffer, source=ANY_SOURCE, tag=ANY_TAG) -> RecvInfo\n\n"
     "Receives a message. Blocks until it is in the buffer."},
    {"allreduce", (PyCFunction)(void (*)(void))messages_allreduce, METH_VARARGS | METH_KEYWORDS,
     "allreduce(sbuf, rbuf, op=Op.SUM)\n\n"
     "Reduces the elements of every rank into the rbuf of every rank."},
    {"_isend", (PyCFunction)(void (*)(void))messages_isend, METH_FASTCALL | METH_KEYWORDS,
     "_isend(operation, buffer, dest, tag=0)\n\nStarts a send."},
    {"_irecv", (PyCFunction)(void (*)(void))messages_irecv, METH_FASTCALL | METH_KEYWORDS,
     "_irecv(operation, buffer, source=ANY_SOURCE, tag=ANY_TAG)\n\nStarts a receive."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef messages_members[] = {
    {"_id", messages_get_id, messages_set_id, "The handle's number.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot messages_slots[] = {
    {Py_tp_doc, "Blocking messages of a communicator."},
    {Py_tp_methods, messages_methods},
    {Py_tp_getset, messages_members},
    {Py_tp_dealloc, fast_free},
    {0, NULL},
};

static PyType_Spec messages_spec = {
    "dtl._fast.Messages", sizeof(messages_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    messages_slots,
};

static PyStructSequence_Field recv_info_fields[] = {
    {"source", "Rank of the sender."},
    {"tag", "Tag of the message."},
    {"size_bytes", "Size of the whole message in bytes."},
    {NULL, NULL},
};

static PyStructSequence_Desc recv_info_desc = {
    "dtl.RecvInfo", "Result of a receive or probe.", recv_info_fields, 3,
};

static PyMethodDef functions[] = {
    {"set_error", set_error, METH_O, "Sets the function that raises dtl.Error."},
    {"wait", wait_request, METH_VARARGS, "wait(number, timeout_ns) -> (status, result)"},
    {"test", test_request, METH_O, "test(number) -> (status, done, result)"},
    {"capsule_of", fast_capsule_of, METH_VARARGS, "Returns a capsule with a tensor of DLPack."},
    {"tensor_of", fast_tensor_of, METH_O,
     "Returns the address of a capsule's tensor, and its version."},
    {"consume", fast_consume, METH_O, "Marks the tensor of a capsule as consumed."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dtl._fast", "Parts of the binding in C.", -1, functions,
    NULL, NULL, NULL, NULL,
};

/* Creates a type and adds it to the module; the result is borrowed from that. */
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    const int is_added = type && PyModule_AddObjectRef(module, name, type) == 0;
    Py_XDECREF(type);
    return is_added ? (PyTypeObject *)type : NULL;
}

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *module = PyModule_Create(&definition);
    recv_info = PyStructSequence_NewType(&recv_info_desc);
    if (!module || !recv_info || !add_type(module, &messages_spec, "Messages") ||
        !(buffer_type = add_type(module, &fast_buffer_spec, "Buffer")) ||
        !(operation_type = add_type(module, &operation_spec, "Operation")) ||
        !add_type(module, &fast_block_spec, "Block") ||
        PyModule_AddObjectRef(module, "RecvInfo", (PyObject *)recv_info) != 0) {
        Py_XDECREF(module);
        return NULL;
    }
    Py_INCREF((PyObject *)buffer_type);
    Py_INCREF((PyObject *)operation_type);
    return module;
}
