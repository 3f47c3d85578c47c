/* _fast.h: what _fast.c and _memory.c share. */
#ifndef DTL_PYTHON_FAST_H
#define DTL_PYTHON_FAST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dtl.h>

/* A buffer of Python that is in use: it can be neither freed nor resized. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
    uint64_t address;
    uint64_t count;
    uint64_t size_bytes;
    int dtype;
} buffer_t;

/* Returns the dtype of the elements of a buffer, or DTL_DTYPE_BYTE for those that have none. */
dtl_dtype_t fast_dtype_of(const Py_buffer *view);

/* Returns the number of elements of a buffer. */
uint64_t fast_count_of(const Py_buffer *view, dtl_dtype_t dtype);

/* Gets a buffer whose elements are data. Returns -1 with an exception on failure. */
int fast_get_buffer(PyObject *object, Py_buffer *view, int flags);

/* Frees an object of a heap type. */
void fast_free(PyObject *self);

extern PyType_Spec fast_buffer_spec;
extern PyType_Spec fast_block_spec;

PyObject *fast_capsule_of(PyObject *module, PyObject *args);
PyObject *fast_tensor_of(PyObject *module, PyObject *capsule);
PyObject *fast_consume(PyObject *module, PyObject *capsule);

#endif
