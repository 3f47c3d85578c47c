// environment.hpp: environments (dtl_environment_…): one of a class, and one that is required. Part of dtl.hpp.
#ifndef DTL_ENVIRONMENT_HPP
#define DTL_ENVIRONMENT_HPP

#include "error.hpp"

#include <initializer_list>
#include <new>
#include <string>
#include <vector>

namespace dtl {

/// Registers an environment whose state is an object of class T: made by its default constructor when somebody requires the
/// environment, destroyed when nobody does any more. What the constructor throws is the failure.
template <class T>
void register_environment(const char *name, const char *version = nullptr,
                          std::initializer_list<const char *> depends = {})
{
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    desc.name = name;
    desc.version = version;
    desc.depends = depends.begin();
    desc.depends_count = static_cast<uint32_t>(depends.size());
    desc.state_size = sizeof(T);
    desc.state_align = alignof(T);
    desc.init = [](void *, void *state) noexcept -> dtl_status_t {
        return detail::slot([state] {
            new (state) T();
            return dtl_status_t{DTL_SUCCESS};
        });
    };
    desc.finalize = [](void *, void *state) noexcept -> dtl_status_t {
        static_cast<T *>(state)->~T();
        return DTL_SUCCESS;
    };
    check(dtl_environment_register(&desc));
}

/// Removes an environment; those that depend on it can no longer be required. Throws DTL_ERROR_BUSY
/// while it is required, DTL_ERROR_NOT_FOUND if there is none of that name.
inline void unregister_environment(const char *name)
{
    check(dtl_environment_unregister(name));
}

/// An environment that is required as long as this lives.
class environment {
  public:
    /// "name", or "name>=version".
    explicit environment(const char *name)
    {
        const std::string asked = name;
        name_ = asked.substr(0, asked.find_first_of("> "));
        check(dtl_environment_require(name));
    }
    environment(environment &&other) noexcept : name_(std::move(other.name_)) { other.name_.clear(); }
    environment &operator=(environment &&other) noexcept
    {
        name_.swap(other.name_);
        return *this;
    }
    environment(const environment &) = delete;
    environment &operator=(const environment &) = delete;
    ~environment()
    {
        if (!name_.empty()) {
            DTL_IGNORE(dtl_environment_release(name_.c_str()));
        }
    }

    /// Its state, as the class that it was registered with.
    template <class T> T &state() const
    {
        void *block = nullptr;
        check(dtl_environment_state(name_.c_str(), &block));
        return *static_cast<T *>(block);
    }

    /// What it is. The texts live as long as the process.
    dtl_environment_info_t info() const
    {
        dtl_environment_info_t info = DTL_ENVIRONMENT_INFO_INIT;
        check(dtl_environment_info(name_.c_str(), &info));
        return info;
    }

    /// Whether one could be required; if not, `why` says why not.
    static bool is_available(const char *name, std::string *why = nullptr)
    {
        int32_t yes = 0;
        char text[4096] = "";
        check(dtl_environment_is_available(name, &yes, text, sizeof text, nullptr));
        if (why != nullptr) {
            *why = text;
        }
        return yes != 0;
    }

    /// All that are registered.
    static std::vector<dtl_environment_info_t> all()
    {
        uint64_t count = 0;
        check(dtl_environment_count(&count));
        std::vector<dtl_environment_info_t> found;
        for (uint64_t i = 0; i < count; i++) {
            dtl_environment_info_t info = DTL_ENVIRONMENT_INFO_INIT;
            check(dtl_environment_at(i, &info));
            found.push_back(info);
        }
        return found;
    }

  private:
    std::string name_;
};

} // namespace dtl

#endif
