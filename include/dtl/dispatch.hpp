// Dispatchers of the C++ interface. Part of dtl.hpp.
#ifndef DTL_DISPATCH_HPP
#define DTL_DISPATCH_HPP

#include "backend.hpp"
#include "enums.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dtl {

/// A key for dispatcher_ref::add; what is left out is DTL_DISPATCH_ANY.
constexpr dtl_dispatch_key_t dispatch_key(detail::word_of<DTL_ENUM_OPERATION> op,
                                          dtl_enum_word_t source = DTL_DISPATCH_ANY,
                                          dtl_enum_word_t destination = DTL_DISPATCH_ANY,
                                          dtl_enum_word_t by = DTL_DISPATCH_ANY) noexcept
{
    return {op, source, destination, by, {0, 0}};
}

/// A query; what is left out is none.
constexpr dtl_dispatch_query_t dispatch_query(detail::word_of<DTL_ENUM_OPERATION> op,
                                              dtl_enum_word_t source = DTL_DISPATCH_ANY,
                                              dtl_enum_word_t destination = DTL_DISPATCH_ANY,
                                              dtl_enum_word_t by = DTL_DISPATCH_ANY,
                                              void *args = nullptr) noexcept
{
    return {sizeof(dtl_dispatch_query_t), 0, op, source, destination, by, args};
}

/// A handler in a dispatcher, unregistered at the end of the scope. Its functions live until their last call is over,
/// which may be later.
class registration {
  public:
    registration() noexcept = default;
    registration(dtl_dispatcher_t dispatcher, dtl_registration_t handle) noexcept
        : dispatcher_(dispatcher), handle_(handle)
    {
    }
    registration(registration &&other) noexcept
        : dispatcher_(other.dispatcher_), handle_(std::exchange(other.handle_, dtl_registration_t{}))
    {
    }
    registration &operator=(registration &&other) noexcept
    {
        registration moved(std::move(other));
        std::swap(dispatcher_, moved.dispatcher_);
        std::swap(handle_, moved.handle_);
        return *this;
    }
    registration(const registration &) = delete;
    registration &operator=(const registration &) = delete;
    ~registration()
    {
        if (handle_.id != 0) {
            DTL_IGNORE(dtl_dispatch_unregister(dispatcher_, handle_));
        }
    }

    dtl_registration_t get() const noexcept { return handle_; }

    /// Leaves it registered until it is unregistered, or until dtl_finalize.
    dtl_registration_t release() noexcept { return std::exchange(handle_, dtl_registration_t{}); }

  private:
    dtl_dispatcher_t dispatcher_{};
    dtl_registration_t handle_{};
};

/// View of a dispatcher. Default: the one that the library uses.
class dispatcher_ref {
  public:
    dispatcher_ref() noexcept : handle_(dtl_dispatcher_default()) {}
    dispatcher_ref(dtl_dispatcher_t handle) noexcept : handle_(handle) {}

    dtl_dispatcher_t get() const noexcept { return handle_; }

    /// Registers a handler as it is.
    registration add(const std::vector<dtl_dispatch_key_t> &keys, const dtl_dispatch_handler_t &handler) const
    {
        dtl_registration_t made{};
        check(dtl_dispatch_register(handle_, keys.data(), keys.size(), &handler, &made));
        return {handle_, made};
    }

    /// Registers function(const dtl_dispatch_query_t &), which returns void or a dtl_status_t and may throw.
    template <class F>
    registration add(const char *name, const std::vector<dtl_dispatch_key_t> &keys, F &&function,
                     detail::enum_or_plain<dispatch_flags> flags = dispatch_flags::none) const
    {
        using body = functions<std::decay_t<F>, std::nullptr_t>;
        return add_made(name, keys, std::make_unique<body>(body{std::forward<F>(function), nullptr}), flags, 0);
    }

    /// The same with a predicate: bool(const dtl_dispatch_query_t &), which may throw; the higher priority wins.
    template <class P, class F>
    registration add_if(const char *name, const std::vector<dtl_dispatch_key_t> &keys, P &&predicate, F &&function,
                        std::int32_t priority = 0) const
    {
        using body = functions<std::decay_t<F>, std::decay_t<P>>;
        return add_made(name, keys,
                        std::make_unique<body>(body{std::forward<F>(function), std::forward<P>(predicate)}), 0, priority);
    }

    /// A backend does what the keys say, whoever is asked.
    registration add(const char *name, const std::vector<dtl_dispatch_key_t> &keys, backend_ref backend) const
    {
        dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
        handler.name = name;
        handler.backend = backend.get();
        return add(keys, handler);
    }

    /// What the keys say is illegal.
    registration forbid(const char *name, const std::vector<dtl_dispatch_key_t> &keys, const char *reason) const
    {
        dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
        handler.name = name;
        handler.flags = DTL_DISPATCH_ILLEGAL;
        handler.reason = reason;
        return add(keys, handler);
    }

    dtl_registration_t find(const dtl_dispatch_query_t &query) const
    {
        dtl_registration_t found{};
        check(dtl_dispatch_find(handle_, &query, &found));
        return found;
    }

    /// Has it done, all of it.
    void invoke(const dtl_dispatch_query_t &query) const { check(dtl_dispatch_invoke(handle_, &query, nullptr)); }

    std::string explain(const dtl_dispatch_query_t &query) const
    {
        return detail::text_of([&](char *buf, uint64_t cap, uint64_t *length) {
            return dtl_dispatch_explain(handle_, &query, buf, cap, length);
        });
    }

  protected:
    dtl_dispatcher_t handle_;

  private:
    template <class F, class P> struct functions {
        F function;
        P predicate;

        static int32_t asks(const dtl_dispatch_query_t *query, void *user) noexcept
        {
            bool yes = false;
            const dtl_status_t status = detail::slot([&] {
                yes = static_cast<functions *>(user)->predicate(*query);
                return DTL_SUCCESS;
            });
            return status == DTL_SUCCESS ? yes : -status;
        }

        static dtl_status_t does(const dtl_dispatch_query_t *query, dtl_event_t *, void *user) noexcept
        {
            return detail::slot([&]() -> dtl_status_t {
                F &handler = static_cast<functions *>(user)->function;
                if constexpr (std::is_void_v<decltype(handler(*query))>) {
                    handler(*query);
                    return DTL_SUCCESS;
                } else {
                    return handler(*query);
                }
            });
        }

        static void ends(void *user) noexcept { delete static_cast<functions *>(user); }
    };

    template <class F, class P>
    registration add_made(const char *name, const std::vector<dtl_dispatch_key_t> &keys,
                          std::unique_ptr<functions<F, P>> made, std::uint64_t flags, std::int32_t priority) const
    {
        dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
        handler.name = name;
        handler.flags = flags;
        handler.priority = priority;
        handler.invoke = &functions<F, P>::does;
        if constexpr (!std::is_same_v<P, std::nullptr_t>) {
            handler.predicate = &functions<F, P>::asks;
        }
        handler.destroy = &functions<F, P>::ends;
        handler.user = made.get();
        registration done = add(keys, handler);
        made.release(); // it is the library's now
        return done;
    }
};

/// A dispatcher of the program's own, destroyed at the end of the scope with all that is registered.
class dispatcher : public dispatcher_ref {
  public:
    explicit dispatcher(detail::enum_or_plain<dispatcher_flags> flags = dispatcher_flags::none)
        : dispatcher_ref(make(flags))
    {
    }
    dispatcher(const dispatcher &) = delete;
    dispatcher &operator=(const dispatcher &) = delete;
    ~dispatcher() { DTL_IGNORE(dtl_dispatcher_destroy(handle_)); }

  private:
    static dtl_dispatcher_t make(std::uint64_t flags)
    {
        dtl_dispatcher_t made{};
        check(dtl_dispatcher_create(flags, &made));
        return made;
    }
};

} // namespace dtl

#endif
