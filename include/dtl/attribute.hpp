// Attributes of communicators in the C++ interface: objects that a program attaches to them. Part
// of dtl.hpp.
#ifndef DTL_ATTRIBUTE_HPP
#define DTL_ATTRIBUTE_HPP

#include "comm.hpp"

#include <memory>
#include <type_traits>
#include <utility>

namespace dtl {

/// Attribute of communicators of this process: a T on each communicator for which it was set. The
/// communicator owns the T and destroys it when the attribute is erased or replaced, or the
/// communicator ends. Libraries keep their state of a communicator in it:
///
///     const dtl::attribute<schedule> plan;
///     schedule &mine = plan.set(world, schedule(world));
///     if (schedule *found = plan.find(other)) { ... }
///
/// Duplicates (comm_ref::dup) get a copy if `copied` is true. If T's copy constructor throws, dup
/// fails with the status of the dtl::error, DTL_ERROR_OUT_OF_MEMORY of a std::bad_alloc,
/// DTL_ERROR_CANCELED of anything else. The destructor of T must not throw. It runs in the thread
/// that ends the communicator.
///
/// The destructor of this object ends the key. The T that are set stay until their communicators
/// end. Any thread may call, but for one communicator not two at once.
template <class T, bool copied = std::is_copy_constructible_v<T>> class attribute {
  public:
    attribute()
    {
        dtl_attribute_copy_fn_t copy_fn = nullptr;
        if constexpr (copied) {
            copy_fn = [](dtl_comm_t, int32_t, void *, void *value, void **out_value,
                         int32_t *out_copy) noexcept -> dtl_status_t {
                try {
                    *out_value = new T(*static_cast<const T *>(value));
                    *out_copy = 1;
                    return DTL_SUCCESS;
                } catch (...) {
                    return detail::current_status();
                }
            };
        }
        const dtl_attribute_delete_fn_t delete_fn = [](dtl_comm_t, int32_t, void *,
                                                       void *value) noexcept {
            delete static_cast<T *>(value);
        };
        check(dtl_comm_key_create(copy_fn, delete_fn, nullptr, &key_));
    }
    attribute(const attribute &) = delete;
    attribute &operator=(const attribute &) = delete;
    ~attribute() { DTL_IGNORE(dtl_comm_key_destroy(key_)); }

    /// Attaches an object to a communicator, and destroys the one before. The reference is valid
    /// until that happens to this one.
    T &set(comm_ref comm, T value) const
    {
        auto made = std::make_unique<T>(std::move(value));
        check(dtl_comm_set_attr(comm.get(), key_, made.get()));
        return *made.release(); // the communicator's now
    }

    /// Returns the object of a communicator; null if none is set.
    T *find(comm_ref comm) const
    {
        void *value = nullptr;
        int32_t found = 0;
        check(dtl_comm_get_attr(comm.get(), key_, &value, &found));
        return found != 0 ? static_cast<T *>(value) : nullptr;
    }

    /// Destroys the object of a communicator. Throws DTL_ERROR_NOT_FOUND if none is set.
    void erase(comm_ref comm) const { check(dtl_comm_delete_attr(comm.get(), key_)); }

  private:
    int32_t key_ = 0;
};

} // namespace dtl

#endif
