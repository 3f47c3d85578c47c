
/* -----------------------------------------------------------------------------------------------
 * What a plugin is compiled with: its entry's linkage, and how its compiler laid out our structs.
 * -------------------------------------------------------------------------------------------- */

/// Before the definition of dtl_plugin_entry_v1: visible to dlsym, with C linkage.
#ifdef __cplusplus
#define DTL_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define DTL_PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

/// The dtl_layout_t of a struct as a whole, and of one of its fields.
#define DTL_LAYOUT_STRUCT(type) {#type, NULL, 0, (uint32_t)sizeof(type), 0}
#define DTL_LAYOUT_FIELD(type, member)                                                            \
    {#type, #member, (uint32_t)offsetof(type, member), (uint32_t)sizeof(((type *)0)->member), 0}

/// A row for every struct that passes between a plugin and the library, and for each of its fields.
/// DTL_PLUGIN_INIT puts them into dtl_plugin_t; both of these grow with the header.
@LAYOUTS@
/// Those rows as an array that lives for ever.
static inline const dtl_layout_t *dtl_layouts(void)
{
    static const dtl_layout_t rows[] = {DTL_LAYOUTS};
    return rows;
}
