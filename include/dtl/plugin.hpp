// Plugins of C++ classes: DTL_PLUGIN_CLASSES makes the entry of a plugin file whose backend consists of classes that
// satisfy the concepts of dtl/concepts.hpp (C++20), DTL_PLUGIN_STEPMESH one of a class that derives from StepMesh's
// Backend (C++17; include dtl/stepmesh.hpp after this header). Not part of dtl.hpp, of which a plugin includes nothing.
//
//     #include <dtl/plugin.hpp> // before the others
//     class my_space { ... };
//     class my_executor { ... };
//     DTL_PLUGIN_CLASSES("mine", "1.0", my_space, my_executor)
//
// A plugin is not linked with the library. Only the functions that these classes need are available in it; for any
// other function of the library the linker reports an undefined symbol.
#ifndef DTL_PLUGIN_HPP
#define DTL_PLUGIN_HPP

#ifdef DTL_ERROR_HPP
#error "include dtl/plugin.hpp before the other headers of the library"
#endif
#define DTL_IN_PLUGIN 1

#include "concepts.hpp"
#include "error.hpp"

#include <memory>

namespace dtl::detail {

/// Fills in the description of a plugin with one backend.
inline dtl_status_t describe_plugin(const dtl_host_api_t *host, dtl_plugin_t *out, const char *name,
                                    const char *version, dtl_status_t (*load)(const dtl_host_api_t *)) noexcept
{
    host_api = host;
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = name;
    plugin.version = version;
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}

#if DTL_HAS_CONCEPTS
/// Registers new objects of the classes, in each `load`.
template <class... Made> dtl_status_t load_classes(const dtl_host_api_t *host, const char *name) noexcept
{
    using all = assembled<Made...>;
    return slot([&] { return all::enter(host, name, std::make_unique<all>(by_default<Made>{}...)); });
}
#endif

} // namespace dtl::detail

/// Defines the entry of a plugin with a backend that is made of classes: DTL_PLUGIN_CLASSES(name, version, classes...).
/// `name` is the name of the plugin and of the backend; `version` is a text or nullptr. The objects are
/// default-constructed when the plugin is loaded, so their constructors must be quick and must not access hardware. If
/// a communicator class has a constructor from `const dtl_comm_open_t &`, dtl_comm_open constructs the object.
#define DTL_PLUGIN_CLASSES(name, version, ...)                                                                         \
    DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)                  \
    {                                                                                                                  \
        return dtl::detail::describe_plugin(host, out, name, version, [](const dtl_host_api_t *by) -> dtl_status_t {   \
            return dtl::detail::load_classes<__VA_ARGS__>(by, name);                                                   \
        });                                                                                                            \
    }

#endif
