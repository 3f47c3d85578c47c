// Kernels from source in the C++ interface. Part of dtl.hpp.
#ifndef DTL_MODULE_HPP
#define DTL_MODULE_HPP

#include "exec.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtl {

/// Source of kernels for a dtl::kernel_module. Only `text` is required.
struct kernel_source {
    /// The text, or the bytes of a binary.
    std::string text;
    /// Language of the text; none = whichever the backend compiles. The text then uses the macros
    /// of dtl_kernel.h.
    dtl::language language{};
    /// Options for the compiler, each one word of the command line.
    std::vector<std::string> options{};
    /// Name in messages.
    std::string name{"source"};
    /// Name and text of files that `#include` finds before any file on disk.
    std::vector<std::pair<std::string, std::string>> files{};
    /// Environments that the source needs: "name" or "name>=version". The module requires them.
    std::vector<std::string> environments{};
};

namespace detail {

/// Letter of a kernel's argument type, as dtl_kernel_get takes it.
template <class T> std::string kernel_letter()
{
    static_assert(std::is_trivially_copyable_v<T>, "kernel arguments are copied as bytes");
    if constexpr (std::is_enum_v<T>) {
        return kernel_letter<std::underlying_type_t<T>>();
    } else if constexpr (std::is_pointer_v<T>) {
        return "p";
    } else if constexpr (std::is_floating_point_v<T>) {
        static_assert(sizeof(T) <= 8, "no kernel takes such a number");
        return sizeof(T) == 4 ? "f" : "d";
    } else if constexpr (std::is_integral_v<T>) {
        const std::size_t width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return std::string(1, (std::is_signed_v<T> ? "bhil" : "BHIL")[width]);
    } else {
        return "[" + std::to_string(sizeof(T)) + "]";
    }
}

} // namespace detail

/// Compiled source, from which kernels are obtained by name. Kernels stay valid after the module.
class kernel_module {
  public:
    /// Compiles source for a device of a backend with "modules", and blocks until that is done.
    /// Throws DTL_ERROR_COMPILE_FAILED with the first errors; last_log() then has all output of the
    /// compiler. Any thread may compile, several at once. Do not compile while a stream waits for
    /// the calling thread.
    explicit kernel_module(const kernel_source &source, backend_ref backend = {}, int device = 0)
    {
        std::vector<const char *> options, environments;
        std::vector<dtl_source_file_t> files;
        for (const std::string &option : source.options) {
            options.push_back(option.c_str());
        }
        for (const std::string &environment : source.environments) {
            environments.push_back(environment.c_str());
        }
        for (const auto &[name, text] : source.files) {
            files.push_back({name.c_str(), text.data(), text.size(), 0});
        }
        dtl_source_t described = DTL_SOURCE_INIT;
        described.language = source.language;
        described.text = source.text.data();
        described.size_bytes = source.text.size();
        described.name = source.name.c_str();
        described.options = options.data();
        described.option_count = static_cast<uint32_t>(options.size());
        described.files = files.data();
        described.file_count = static_cast<uint32_t>(files.size());
        described.environments = environments.data();
        described.environment_count = static_cast<uint32_t>(environments.size());
        dtl_module_t handle;
        check(dtl_module_compile(backend.get(), device, &described, &handle));
        handle_.reset(handle);
    }
    /// Takes over a module that C functions made.
    explicit kernel_module(dtl_module_t handle) noexcept : handle_(handle) {}

    dtl_module_t get() const noexcept { return handle_.get(); }

    /// Returns a kernel by its name in the source. `signature` has a letter for the type of each
    /// argument (see dtl_kernel_get), against which launches are checked; null = they are checked
    /// against the sizes that the module has. Throws DTL_ERROR_NOT_FOUND if there is no such
    /// kernel.
    [[nodiscard]] dtl::kernel kernel(const char *name, const char *signature = nullptr) const
    {
        dtl_kernel_t made;
        check(dtl_kernel_get(get(), name, signature, &made));
        return dtl::kernel(made);
    }

    /// Returns a kernel with the types of its arguments: `module.kernel_of<float *, int>("scale")`.
    /// Launches with arguments of other sizes fail.
    template <class... Args> [[nodiscard]] dtl::kernel kernel_of(const char *name) const
    {
        const std::string signature = (std::string() + ... + detail::kernel_letter<Args>());
        return kernel(name, signature.c_str());
    }

    /// Returns the output of the compiler, including warnings.
    std::string log() const { return log_of(get()); }

    /// Returns the output of the compiler for the last compilation that failed in the calling
    /// thread; empty if none did.
    static std::string last_log() { return log_of(DTL_MODULE_NULL); }

  private:
    static std::string log_of(dtl_module_t module)
    {
        return detail::text_of(
            [&](char *buf, uint64_t cap, uint64_t *length) { return dtl_module_log(module, buf, cap,
                                                                                   length); });
    }

    detail::owned<dtl_module_t, dtl_module_destroy> handle_;
};

/// Returns the text of dtl_kernel.h that sources for the loaded library include, for backends that
/// have a compiler of their own. Valid until the process ends. Works in every state of the library.
inline std::string_view kernel_header() noexcept
{
    return dtl_kernel_header();
}

} // namespace dtl

#endif
