/* The linked plugin's own function is there; of the other one, the entry and what it shows, and no more. */
#include <dlfcn.h>
#include <stdio.h>

int shown_function(void);

int main(void)
{
    void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*shown)(void) = (int (*)(void))dlsym(plugin, "shown_function");
    if (dlsym(plugin, "dtl_plugin_entry_v1") == NULL || shown == NULL || shown() != -7 || shown_function() != 0) {
        fprintf(stderr, "what should be visible is not, or has the wrong priority\n");
        return 1;
    }
    if (dlsym(plugin, "hidden_function") != NULL || dlsym(plugin, "_Z13hidden_in_cppv") != NULL) {
        fprintf(stderr, "what should be hidden is visible\n");
        return 1;
    }
    puts("consumer: both plugins are built as they should be");
    return 0;
}
