// Slots from member functions that throw: a slot returns the status of what its function throws.
#ifndef SIM_SLOT_HPP
#define SIM_SLOT_HPP

#include <dtl/plugin.hpp> // dtl::error, for a plugin, which does not link the library

#include <exception>
#include <new>

namespace sim {

extern const dtl_host_api_t *host; // functions of the library, for plugins; set before any slot

/// Throws dtl::error with a text unless a status is success.
inline void check(dtl_status_t status, const char *text)
{
    if (status != DTL_SUCCESS) {
        throw dtl::error(status, text);
    }
}

/// Calls a function that may throw. No exception may leave a slot: the library would crash.
template <class F> dtl_status_t guarded(F &&function) noexcept
{
    try {
        function();
        return DTL_SUCCESS;
    } catch (const dtl::error &error) {
        DTL_IGNORE(host->set_error(error.what()));
        return error.status();
    } catch (const std::bad_alloc &) {
        return DTL_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        DTL_IGNORE(host->set_error(error.what()));
    } catch (...) {
        DTL_IGNORE(host->set_error("an exception that is no std::exception"));
    }
    return DTL_ERROR_BACKEND;
}

template <auto Member> struct slot_of;
template <class C, class... Args, void (C::*Member)(Args...)> struct slot_of<Member> {
    static dtl_status_t call(void *self, Args... args) noexcept
    {
        return guarded([&] { (static_cast<C *>(self)->*Member)(args...); });
    }
};

/// The slot of a member function of the class that `self` points to.
template <auto Member> inline constexpr auto slot = &slot_of<Member>::call;

} // namespace sim

#endif
