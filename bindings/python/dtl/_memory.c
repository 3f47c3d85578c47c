/* _memory.c: memory that Python and the library share, over Python's stable interface.
 *
 * Buffer   a buffer of Python in use by the library: its address, dtype and number of elements
 * Block    memory of the library as a buffer of Python
 * tensors  DLPack's capsules
 */
#include "_fast.h"
#include <stddef.h>
#include <string.h>
#include <structmember.h>

/* Returns the dtype of the elements of a buffer, or DTL_DTYPE_BYTE for those that have none. */
dtl_dtype_t fast_dtype_of(const Py_buffer *view)
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

uint64_t fast_count_of(const Py_buffer *view, dtl_dtype_t dtype)
{
    return (uint64_t)(dtype == DTL_DTYPE_BYTE ? view->len : view->len / view->itemsize);
}

/* Returns true if a format has Python objects (O), outside of the names of fields (:name:). */
static int has_objects(const char *format)
{
    int is_name = 0;
    for (; format && *format; ++format) {
        is_name ^= *format == ':';
        if (*format == 'O' && !is_name) {
            return 1;
        }
    }
    return 0;
}

int fast_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    if (PyObject_GetBuffer(object, view, flags) != 0) {
        return -1;
    }
    if (!has_objects(view->format)) {
        return 0;
    }
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_TypeError, "its elements are Python objects (send pickle.dumps of them)");
    return -1;
}

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
    if (!self || fast_get_buffer(object, &self->view, flags) != 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    const dtl_dtype_t dtype = fast_dtype_of(&self->view);
    self->address = (uint64_t)(uintptr_t)self->view.buf;
    self->count = fast_count_of(&self->view, dtype);
    self->size_bytes = (uint64_t)self->view.len;
    self->dtype = (int)dtype;
    return (PyObject *)self;
}

/* Frees an object of a heap type. */
void fast_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

static void buffer_dealloc(PyObject *self)
{
    PyBuffer_Release(&((buffer_t *)self)->view);
    fast_free(self);
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
    fast_free(self);
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
PyObject *fast_capsule_of(PyObject *module, PyObject *args)
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
PyObject *fast_tensor_of(PyObject *module, PyObject *capsule)
{
    (void)module;
    const int versioned = PyCapsule_IsValid(capsule, fresh_names[1]);
    void *tensor = PyCapsule_GetPointer(capsule, fresh_names[versioned]);
    return tensor ? Py_BuildValue("Ki", (unsigned long long)(uintptr_t)tensor, versioned) : NULL;
}

/* Marks the tensor of a capsule as consumed: its new owner calls the deleter. */
PyObject *fast_consume(PyObject *module, PyObject *capsule)
{
    (void)module;
    const int versioned = PyCapsule_IsValid(capsule, fresh_names[1]);
    if (PyCapsule_SetName(capsule, used_names[versioned]) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

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

PyType_Spec fast_buffer_spec = {
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

PyType_Spec fast_block_spec = {
    "dtl._fast.Block", sizeof(block_t), 0, Py_TPFLAGS_DEFAULT, block_slots,
};
