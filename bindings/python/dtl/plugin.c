/* plugin.c: a plugin whose backend is a class in Python (dtl/registered.py).
 *
 * `python -m dtl --plugin MODULE:CLASS OUT.so` compiles it, with these macros:
 *     DTL_PYTHON_BACKEND   "MODULE:CLASS"
 *     DTL_PYTHON_PATH      folders of modules, separated by colons
 * The program that loads the plugin may be a program in Python, or not: then the plugin starts the
 * interpreter, which stays until the process ends.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <dtl.h>

/* Adds the folders to the end of sys.path. */
static int add_path(void)
{
    PyObject *path = PySys_GetObject("path"); /* borrowed */
    PyObject *text = PyUnicode_FromString(DTL_PYTHON_PATH);
    PyObject *folders = text ? PyObject_CallMethod(text, "split", "s", ":") : NULL;
    PyObject *result = folders && path ? PyObject_CallMethod(path, "extend", "O", folders) : NULL;
    const int is_added = result != NULL;
    Py_XDECREF(result);
    Py_XDECREF(folders);
    Py_XDECREF(text);
    return is_added;
}

static dtl_status_t load_python(const dtl_host_api_t *host)
{
    PyObject *module = add_path() ? PyImport_ImportModule("dtl.registered") : NULL;
    PyObject *result = module ? PyObject_CallMethod(module, "load_plugin", "Ks",
                                                    (unsigned long long)(uintptr_t)host,
                                                    DTL_PYTHON_BACKEND)
                              : NULL;
    dtl_status_t status = DTL_ERROR_UNAVAILABLE;
    if (result) {
        status = (dtl_status_t)PyLong_AsLong(result);
    } else {
        PyErr_Print();
        DTL_IGNORE(host->set_error("the package dtl cannot be imported: see standard error"));
    }
    Py_XDECREF(result);
    Py_XDECREF(module);
    return status;
}

/* Starts the interpreter. Python's modules expect its functions among the global symbols, but the
 * library of a plugin is not. */
static void start_python(void)
{
    Dl_info found;
    if (dladdr((void *)(uintptr_t)Py_InitializeEx, &found)) {
        (void)dlopen(found.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    }
    Py_InitializeEx(0); /* signals are the program's */
    (void)PyEval_SaveThread(); /* any thread may call a slot */
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    if (!Py_IsInitialized()) {
        start_python();
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    const dtl_status_t status = load_python(host);
    PyGILState_Release(state);
    return status;
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = "python";
    plugin.description = "a backend in Python: " DTL_PYTHON_BACKEND;
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
