/* The linked form works like the plugin: the same functions of the host, listed, again after dtl_finalize, undone if its load
 * fails. Two of them in one program do not disturb each other. */
#include <dtl_backend_both_forms.h>
#include <dtl_backend_second.h>
#include <string.h>

static void require(int holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "%s does not hold; last error: %s\n", what, dtl_last_error());
    exit(1);
}

static void fails_with_its_text(const char *name)
{
    dtl_backend_t backend;
    void *memory = NULL;
    char text[100];
    snprintf(text, sizeof text, "the memory of %s is used up", name);
    DTL_CHECK(dtl_backend_get(name, &backend));
    require(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 100, 0, &memory) == DTL_ERROR_OUT_OF_MEMORY, "the status of the slot");
    require(strstr(dtl_last_error(), text) != NULL, text);
}

int main(void)
{
    dtl_backend_t backend, again;
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    int round;
    for (round = 0; round < 2; round++) {
        DTL_CHECK(dtl_init(NULL));
        require(dtl_plugin_register(NULL, NULL) == DTL_ERROR_NULL_POINTER, "an entry that is NULL");
        setenv("TEST_SECOND_NAME", "host", 1);
        require(dtl_register_backend_both_forms() == DTL_ERROR_ALREADY_EXISTS, "a load that fails");
        require(dtl_backend_get("both-forms", &backend) == DTL_ERROR_NOT_FOUND, "nothing stays after a load that fails");
        unsetenv("TEST_SECOND_NAME");
        DTL_CHECK(dtl_register_backend_both_forms());
        DTL_CHECK(dtl_register_backend_second());
        DTL_CHECK(dtl_register_backend_both_forms()); /* registered already */
        fails_with_its_text("both-forms");
        fails_with_its_text("second");
        DTL_CHECK(dtl_plugin_at(0, &info));
        require(strcmp(info.name, "both-forms") == 0 && strncmp(info.path, "linked into the program", 23) == 0, "the list");
        /* The file has the same backend: the name is taken, whichever came first. */
        require(dtl_backend_load(PLUGIN, &again) == DTL_ERROR_ALREADY_EXISTS, "one name");
        DTL_CHECK(dtl_backend_get("both-forms", &backend));
        DTL_CHECK(dtl_backend_unregister(backend));
        DTL_CHECK(dtl_backend_load(PLUGIN, &again));
        fails_with_its_text("both-forms");
        DTL_CHECK(dtl_finalize());
    }
    puts("consumer: both forms work");
    return 0;
}
