/* _fast.c: what the binding does in C, over Python's stable interface.
 *
 * Messages   blocking messages of dtl.Comm, with few instructions between Python and dtl_comm_send
 * Buffer     a buffer of Python in use by the library: its address, dtype and number of elements
 * Block      memory of the library as a buffer of Python
 * tensors    DLPack's capsules
 *
 * dtl/comm.py derives Comm from Messages. Objects without the buffer protocol (device memory) go to
 * the methods _send_other, _ssend_other and _recv_other of the derived class.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dtl.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    dtl_comm_t comm;
} messages_t;

/* Function of dtl/error.py that raises dtl.Error: (status, buffer) -> never returns. */
static PyObject *raise_error;
/* Type of the result of recv: a named tuple (source, tag, size_bytes). */
static PyTypeObject *recv_info;

typedef dtl_status_t send_fn(dtl_comm_t, const void *, uint64_t, dtl_dtype_t, int32_t, int32_t);

/* Returns the dtype of the elements of a buffer, or DTL_DTYPE_BYTE for those that have none. */
static dtl_dtype_t dtype_of(const Py_buffer *view)
{
    static const dtl_dtype_t integers[2][9] = {
        {-1, DTL_DTYPE_INT8, DTL_DTYPE_INT16, -1, DTL_DTYPE_INT32, -1, -1, -1, DTL_DTYPE_INT64},
        {-1, DTL_DTYPE_UINT8, DTL_DTYPE_UINT16, -1, DTL_DTYPE_UINT32, -1, -1, -1, DTL_DTYPE_UINT64},
    };
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=' || *format == '<') {
        ++format;
    }
    if (strcmp(format, "Zf") == 0 && view->itemsize == 8) {
        return DTL_DTYPE_COMPLEX64;
    }
    if (strcmp(format, "Zd") == 0 && view->itemsize == 16) {
        return DTL_DTYPE_COMPLEX128;
    }
    if (format[0] == '\0' || format[1] != '\0' || view->itemsize < 1 || view->itemsize > 8) {
        return DTL_DTYPE_BYTE;
    }
    switch (*format) {
    case 'b': case 'h': case 'i': case 'l': case 'q': case 'n':
        return integers[0][view->itemsize];
    case 'B': case 'H': case 'I': case 'L': case 'Q': case 'N':
        return integers[1][view->itemsize];
    case '?':
        return DTL_DTYPE_BOOL;
    case 'e':
        return DTL_DTYPE_FLOAT16;
    case 'f':
        return DTL_DTYPE_FLOAT32;
    case 'd':
        return DTL_DTYPE_FLOAT64;
    default:
        return DTL_DTYPE_BYTE;
    }
}

static uint64_t count_of(const Py_buffer *view, dtl_dtype_t dtype)
{
    return (uint64_t)(dtype == DTL_DTYPE_BYTE ? view->len : view->len / view->itemsize);
}

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
    if (PyObject_GetBuffer(all.buffer, &view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return PyObject_CallMethod(self, other, "Oii", all.buffer, (int)all.rank, (int)all.tag);
    }
    const dtl_dtype_t dtype = dtype_of(&view);
    const dtl_comm_t comm = ((messages_t *)self)->comm;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = function(comm, view.buf, count_of(&view, dtype), dtype, all.rank, all.tag);
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
    if (PyObject_GetBuffer(all.buffer, &view, flags) != 0) {
        PyErr_Clear();
        return PyObject_CallMethod(self, "_recv_other", "Oii", all.buffer, (int)all.rank,
                                   (int)all.tag);
    }
    const dtl_dtype_t dtype = dtype_of(&view);
    const dtl_comm_t comm = ((messages_t *)self)->comm;
    dtl_recv_info_t info;
    dtl_status_t status;
    Py_BEGIN_ALLOW_THREADS
    status = dtl_comm_recv(comm, view.buf, count_of(&view, dtype), dtype, all.rank, all.tag, &info);
    Py_END_ALLOW_THREADS
    if (status != DTL_SUCCESS) {
        return fail(status, &view);
    }
    PyBuffer_Release(&view);
    return result_of(&info);
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

/* A buffer of Python that is in use: it can be neither freed nor resized. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
    uint64_t address;
    uint64_t count;
    uint64_t size_bytes;
    int dtype;
} buffer_t;

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    (void)names;
    PyObject *object;
    int writable;
    if (!PyArg_ParseTuple(args, "Op", &object, &writable)) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    buffer_t *self = (buffer_t *)allocate(type, 0);
    const int flags = PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (!self || PyObject_GetBuffer(object, &self->view, flags) != 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    const dtl_dtype_t dtype = dtype_of(&self->view);
    self->address = (uint64_t)(uintptr_t)self->view.buf;
    self->count = count_of(&self->view, dtype);
    self->size_bytes = (uint64_t)self->view.len;
    self->dtype = (int)dtype;
    return (PyObject *)self;
}

/* Frees an object of a heap type. */
static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static void buffer_dealloc(PyObject *self)
{
    PyBuffer_Release(&((buffer_t *)self)->view);
    free_object(self);
}

/* Memory of the library that Python reads and writes. It keeps its owner, which frees it. */
typedef struct {
    PyObject_HEAD
    void *address;
    Py_ssize_t size_bytes;
    Py_ssize_t exports;
    int read_only;
    PyObject *owner;
} block_t;

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    (void)names;
    unsigned long long address;
    Py_ssize_t size_bytes;
    int read_only;
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "KnpO", &address, &size_bytes, &read_only, &owner)) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    block_t *self = (block_t *)allocate(type, 0);
    if (self) {
        self->address = (void *)(uintptr_t)address;
        self->size_bytes = size_bytes;
        self->read_only = read_only;
        self->owner = Py_NewRef(owner);
    }
    return (PyObject *)self;
}

static int block_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    block_t *self = (block_t *)object;
    if (!self->owner) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the memory has been given back to the library");
        return -1;
    }
    if (PyBuffer_FillInfo(view, object, self->address, self->size_bytes, self->read_only,
                          flags) != 0) {
        return -1;
    }
    ++self->exports;
    return 0;
}

static void block_release_buffer(PyObject *object, Py_buffer *view)
{
    (void)view;
    --((block_t *)object)->exports;
}

/* Ends the use of the memory. Fails while arrays of Python use it. */
static PyObject *block_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    block_t *self = (block_t *)object;
    if (self->exports > 0) {
        PyErr_Format(PyExc_BufferError,
                     "%zd arrays or views still use the memory: delete them first (del a)",
                     self->exports);
        return NULL;
    }
    Py_CLEAR(self->owner);
    Py_RETURN_NONE;
}

static void block_dealloc(PyObject *self)
{
    Py_CLEAR(((block_t *)self)->owner);
    free_object(self);
}

static const char *const fresh_names[2] = {"dltensor", "dltensor_versioned"};
static const char *const used_names[2] = {"used_dltensor", "used_dltensor_versioned"};

/* Deletes the tensor of a capsule that nobody has consumed. */
static void delete_tensor(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, fresh_names[0])) {
        dtl_dlpack_managed_t *tensor = PyCapsule_GetPointer(capsule, fresh_names[0]);
        if (tensor->deleter) {
            tensor->deleter(tensor);
        }
    } else if (PyCapsule_IsValid(capsule, fresh_names[1])) {
        dtl_dlpack_versioned_t *tensor = PyCapsule_GetPointer(capsule, fresh_names[1]);
        if (tensor->deleter) {
            tensor->deleter(tensor);
        }
    }
}

/* Returns a capsule with the tensor at an address: (address, versioned). */
static PyObject *capsule_of(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned long long address;
    int versioned;
    if (!PyArg_ParseTuple(args, "Kp", &address, &versioned)) {
        return NULL;
    }
    return PyCapsule_New((void *)(uintptr_t)address, fresh_names[versioned], delete_tensor);
}

/* Returns the (address, versioned) of the tensor in a capsule. */
static PyObject *tensor_of(PyObject *module, PyObject *capsule)
{
    (void)module;
    const int versioned = PyCapsule_IsValid(capsule, fresh_names[1]);
    void *tensor = PyCapsule_GetPointer(capsule, fresh_names[versioned]);
    return tensor ? Py_BuildValue("Ki", (unsigned long long)(uintptr_t)tensor, versioned) : NULL;
}

/* Marks the tensor of a capsule as consumed: its new owner calls the deleter. */
static PyObject *consume(PyObject *module, PyObject *capsule)
{
    (void)module;
    const int versioned = PyCapsule_IsValid(capsule, fresh_names[1]);
    if (PyCapsule_SetName(capsule, used_names[versioned]) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
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
    {Py_tp_dealloc, free_object},
    {0, NULL},
};

static PyType_Spec messages_spec = {
    "dtl._fast.Messages", sizeof(messages_t), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    messages_slots,
};

static PyMemberDef buffer_members[] = {
    {"address", T_ULONGLONG, offsetof(buffer_t, address), READONLY, "Its first byte."},
    {"count", T_ULONGLONG, offsetof(buffer_t, count), READONLY, "Number of elements."},
    {"size_bytes", T_ULONGLONG, offsetof(buffer_t, size_bytes), READONLY, "Size in bytes."},
    {"dtype", T_INT, offsetof(buffer_t, dtype), READONLY, "Element type; BYTE for any other."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, "Buffer(object, writable): a buffer of Python in use by the library."},
    {Py_tp_new, buffer_new},
    {Py_tp_members, buffer_members},
    {Py_tp_dealloc, buffer_dealloc},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    "dtl._fast.Buffer", sizeof(buffer_t), 0, Py_TPFLAGS_DEFAULT, buffer_slots,
};

static PyMethodDef block_methods[] = {
    {"close", block_close, METH_NOARGS, "Ends the use of the memory; fails while arrays use it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_doc, "Block(address, size_bytes, read_only, owner): memory of the library."},
    {Py_tp_new, block_new},
    {Py_tp_methods, block_methods},
    {Py_bf_getbuffer, block_get_buffer},
    {Py_bf_releasebuffer, block_release_buffer},
    {Py_tp_dealloc, block_dealloc},
    {0, NULL},
};

static PyType_Spec block_spec = {
    "dtl._fast.Block", sizeof(block_t), 0, Py_TPFLAGS_DEFAULT, block_slots,
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
    {"capsule_of", capsule_of, METH_VARARGS, "Returns a capsule with a tensor of DLPack."},
    {"tensor_of", tensor_of, METH_O, "Returns the address of a capsule's tensor, and its version."},
    {"consume", consume, METH_O, "Marks the tensor of a capsule as consumed."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dtl._fast", "Parts of the binding in C.", -1, functions,
    NULL, NULL, NULL, NULL,
};

/* Creates a type and adds it to the module. */
static int add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    const int result = type ? PyModule_AddObjectRef(module, name, type) : -1;
    Py_XDECREF(type);
    return result;
}

PyMODINIT_FUNC PyInit__fast(void)
{
    PyObject *module = PyModule_Create(&definition);
    recv_info = PyStructSequence_NewType(&recv_info_desc);
    if (!module || !recv_info || add_type(module, &messages_spec, "Messages") != 0 ||
        add_type(module, &buffer_spec, "Buffer") != 0 ||
        add_type(module, &block_spec, "Block") != 0 ||
        PyModule_AddObjectRef(module, "RecvInfo", (PyObject *)recv_info) != 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
