/* share_array: one array, used by two libraries without a copy.
 *
 * The "other library" is a few lines that know DLPack and nothing of dtl: it takes tensors, adds them up and gives them up.
 * The array is made on whichever backend DTL_BACKEND names; memory that the host cannot read is copied to the host first.
 * Then the other library lends a tensor of its own.
 *
 * Build: cc share_array.c $(pkg-config --cflags --libs libdtl) -o share_array
 * Run:   ./share_array
 * Prints both sums and "correct".
 */
#include <dtl.h>

#include <stdio.h>
#include <stdlib.h>

/* ---- the other library ---- */

/* Adds the elements up and keeps no hold of them. With dlpack.h its parameter would be a DLManagedTensorVersioned*. */
static double other_sum(dtl_dlpack_versioned_t *managed)
{
    const dtl_dlpack_tensor_t *t = &managed->tensor;
    const char *first = (const char *)t->data + t->byte_offset;
    double sum = 0;
    for (int64_t i = 0; i < t->shape[0]; i++) {
        for (int64_t j = 0; j < t->shape[1]; j++) {
            sum += ((const double *)(const void *)first)[i * t->strides[0] + j * t->strides[1]];
        }
    }
    managed->deleter(managed); /* from here on the memory may be gone */
    return sum;
}

typedef struct other_array {
    dtl_dlpack_versioned_t tensor;
    int64_t shape[1];
    double elements[3];
} other_array;

static void other_delete(void *self)
{
    free(((dtl_dlpack_versioned_t *)self)->manager_ctx);
}

static dtl_dlpack_versioned_t *other_make(void)
{
    other_array *made = calloc(1, sizeof *made);
    if (made == NULL) {
        exit(1);
    }
    made->shape[0] = 3;
    made->elements[0] = 1, made->elements[1] = 2, made->elements[2] = 4;
    made->tensor.version.major = 1;
    made->tensor.manager_ctx = made;
    made->tensor.deleter = other_delete;
    made->tensor.tensor.data = made->elements;
    made->tensor.tensor.device.device_type = 1; /* the CPU */
    made->tensor.tensor.ndim = 1;
    made->tensor.tensor.dtype = (dtl_dlpack_dtype_t){2, 64, 1}; /* double */
    made->tensor.tensor.shape = made->shape;
    return &made->tensor;
}

/* ---- the program ---- */

/* The array itself if the host can read it, else a copy in host memory. */
static dtl_array_t on_host(dtl_array_t array, dtl_array_info_t info)
{
    dtl_mem_kind_info_t kind = DTL_MEM_KIND_INFO_INIT;
    dtl_backend_t host;
    dtl_array_t copy;
    dtl_array_info_t to = DTL_ARRAY_INFO_INIT;
    DTL_CHECK(dtl_mem_kind_info(info.backend, info.kind, &kind));
    if (kind.properties & DTL_MEMORY_HOST_ACCESSIBLE) {
        return array;
    }
    DTL_CHECK(dtl_backend_get("host", &host));
    DTL_CHECK(dtl_array_alloc(host, DTL_MEMORY_HOST, info.shape, info.ndim, info.dtype, 0, &copy));
    DTL_CHECK(dtl_array_info(copy, &to));
    DTL_CHECK(dtl_mem_copy(to.data, info.data, info.size_bytes));
    DTL_CHECK(dtl_array_destroy(array));
    return copy;
}

int main(void)
{
    const int64_t shape[2] = {3, 4};
    double values[12], sum, borrowed = 0;
    dtl_backend_t backend, host;
    dtl_array_t array;
    dtl_array_info_t info = DTL_ARRAY_INFO_INIT;
    dtl_dlpack_versioned_t *tensor;

    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_backend_get(NULL, &backend));
    DTL_CHECK(dtl_backend_get("host", &host));
    for (int i = 0; i < 12; i++) {
        values[i] = i;
    }

    /* An array goes out. */
    DTL_CHECK(dtl_array_alloc(backend, DTL_MEMORY_DEVICE, shape, 2, DTL_DTYPE_FLOAT64, DTL_ARRAY_ZERO, &array));
    DTL_CHECK(dtl_array_info(array, &info));
    DTL_CHECK(dtl_mem_copy(info.data, values, sizeof values));
    array = on_host(array, info);
    DTL_CHECK(dtl_array_export(array, &tensor));
    DTL_CHECK(dtl_array_destroy(array)); /* the tensor still has the memory */
    sum = other_sum(tensor);
    printf("their sum of our array:  %g (backend %s)\n", sum, dtl_backend_name(backend));

    /* One comes in. */
    DTL_CHECK(dtl_array_import(host, other_make(), &array));
    DTL_CHECK(dtl_array_info(array, &info));
    for (uint64_t i = 0; i < info.count; i++) {
        borrowed += ((const double *)info.data)[i];
    }
    DTL_CHECK(dtl_array_destroy(array)); /* calls their deleter */
    printf("our sum of their array:  %g\n", borrowed);

    DTL_CHECK(dtl_finalize());
    if (sum != 66 || borrowed != 7) {
        return 1;
    }
    printf("correct\n");
    return 0;
}
