// Definitions of dynamic.hpp: run-time checks of the requirements that elsewhere are part of types.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/dynamic.hpp>

#include <dat/detail/endpoint/core.hpp>
#include <dat/detail/impl/memory_kinds.hpp>
#include <dat/detail/memory/registration.hpp>

namespace dat { inline namespace v0 { namespace dynamic {

DAT_DECL expected<void> evd::check(const char* call, streams needed) const noexcept {
  if (!core_) return empty_handle(call);
  if (includes(streams_, needed)) return success();
  return core_->at(error(return_type::invalid_parameter), call)
      .hint("The evd lacks a stream that this use needs: create it with that stream.");
}

DAT_DECL expected<evd_attributes> evd::query() const noexcept {
  auto a = base::query();
  if (a) a.assume_value().streams = streams_; // without the stream that makes it a merged evd
  return a;
}

DAT_DECL expected<evd> create_evd(ia& at, streams which, std::uint32_t qlen, const evd_options& options) noexcept {
  static constexpr const char* call = "dynamic.create_evd";
  if (!at) return detail::empty_handle(call, return_subtype::handle_ia);
  if (which == streams{} || !includes(every_stream, which))
    return error(return_type::invalid_parameter, return_subtype::arg4)
        .at(call, object_kind::evd)
        .hint("An evd needs at least one stream, and only the streams of <dat/streams.hpp> exist.");
  // Adds a stream besides those of completions, so that the evd is merged.
  auto core =
      detail::evd_core::create(detail::core_access::of(at), which | streams::software, qlen, options.completion_vector);
  if (!core) return core.assume_error();
  return evd(std::move(core).assume_value(), which);
}

DAT_DECL error lmr::refusal(const char* call, std::size_t offset, std::size_t bytes, mem_priv needed) const noexcept {
  if (!core_ || !core_->mr()) return empty_handle(call);
  const auto refused = [&](error e, const char* hint) {
    return e.at(call, object_kind::lmr, core_->local_key()).hint(hint);
  };
  if (!includes(rights_, needed)) {
    constexpr struct {
      mem_priv right;
      return_subtype missing;
    } rights[] = {{mem_priv::local_read, return_subtype::privileges_read},
                  {mem_priv::local_write, return_subtype::privileges_write},
                  {mem_priv::remote_read, return_subtype::privileges_rdma_read},
                  {mem_priv::remote_write, return_subtype::privileges_rdma_write}};
    return_subtype missing = return_subtype::none;
    for (const auto& r : rights)
      if (missing == return_subtype::none && includes(needed, r.right) && !includes(rights_, r.right))
        missing = r.missing;
    return refused({return_type::privileges_violation, missing},
                   "The region lacks a right that this use needs: register the memory with it.");
  }
  if (offset > core_->length() || bytes > core_->length() - offset)
    return refused(error(return_type::invalid_parameter), "The range offset + bytes must lie inside size_bytes().");
  return refused(error(return_type::length_error), "One segment names less than 4 GiB: slice the region into several.");
}

DAT_DECL expected<lmr_params> lmr::query() const noexcept {
  return detail::query_region(core_.get(), rights_, (rights_ & detail::peer_rights) != mem_priv::none);
}

DAT_DECL expected<void> lmr::close() noexcept {
  if (core_ && core_->mr())
    if (auto ok = core_->may_close(); !ok) return ok;
  return close_as("lmr.close", return_subtype::lmr_in_use);
}

/// Makes the regions of all kinds.
struct memory_maker {
  template <class Make>
  [[nodiscard]] static expected<lmr> with(const char* call, mem_priv rights, Make make) noexcept {
    if ((static_cast<std::uint32_t>(rights) & ~0x7fu) != 0)
      return error(return_type::invalid_parameter, return_subtype::arg6)
          .at(call, object_kind::lmr)
          .hint("The rights have an unknown bit: combine the values of dat::mem_priv.");
    auto core = make(detail::verbs_access(rights));
    if (!core) return core.assume_error();
    return lmr(std::move(core).assume_value(), rights);
  }
  [[nodiscard]] static detail::lmr_core* core(const lmr& region) noexcept {
    return detail::core_access::of(region).get();
  }
};

DAT_DECL expected<lmr> register_memory(pz& zone, std::span<std::byte> memory, mem_priv rights) noexcept {
  static constexpr const char* call = "dynamic.register_memory";
  if (!zone) return detail::empty_handle(call, return_subtype::handle_pz);
  return memory_maker::with(call, rights, [&](int access) noexcept {
    return detail::lmr_core::create(call, detail::core_access::of(zone), memory.data(), memory.size(), access);
  });
}

DAT_DECL expected<lmr> register_over(pz& zone, const lmr& original, mem_priv rights) noexcept {
  return memory_maker::with("dynamic.register_over", rights, [&](int access) noexcept {
    return detail::register_over(detail::core_access::of(zone), memory_maker::core(original), access);
  });
}

DAT_DECL expected<lmr> register_shared(pz& zone, std::span<std::byte> memory, const shared_cookie& name,
                                       mem_priv rights) noexcept {
  return memory_maker::with("dynamic.register_shared", rights, [&](int access) noexcept {
    return detail::register_shared(detail::core_access::of(zone), memory.data(), memory.size(), access, name);
  });
}

DAT_DECL expected<lmr> register_zero_based(pz& zone, std::span<std::byte> memory, mem_priv rights) noexcept {
  return memory_maker::with("dynamic.register_zero_based", rights, [&](int access) noexcept {
    return detail::register_zero_based(detail::core_access::of(zone), memory.data(), memory.size(), access);
  });
}

DAT_DECL expected<remote_segment<std::byte, mem_priv::none>> post(rmr& window, const ep<rc>& through,
                                                                  const bind& what) noexcept {
  if (!window) return detail::empty_handle(detail::rmr_core::bind_call, return_subtype::handle_rmr);
  detail::rmr_core& core = *detail::core_access::of(window);
  detail::lmr_core* const region = memory_maker::core(*what.region_);
  const mem_priv have = what.region_->rights();
  if (!region || region->dead())
    return core.at({return_type::invalid_handle, return_subtype::handle_lmr}, detail::rmr_core::bind_call)
        .hint("The lmr is empty or closed.");
  if ((what.offset_ > region->length() || what.bytes_ > region->length() - what.offset_ || what.bytes_ == 0))
    return core.at({return_type::invalid_parameter, return_subtype::arg3}, detail::rmr_core::bind_call)
        .hint("The range offset + bytes must lie inside the lmr, and bytes must not be 0. To close the window, call "
              "unbind.");
  if (detail::includes_any(what.rights_, mem_priv::remote_read) && !includes(have, mem_priv::local_read))
    return core.at({return_type::privileges_violation, return_subtype::privileges_read}, detail::rmr_core::bind_call)
        .hint("A window with remote_read needs an lmr with local_read.");
  if (detail::includes_any(what.rights_, mem_priv::remote_write | mem_priv::remote_atomic) &&
      !includes(have, mem_priv::local_write))
    return core.at({return_type::privileges_violation, return_subtype::privileges_write}, detail::rmr_core::bind_call)
        .hint("A window with remote_write or remote_atomic needs an lmr with local_write.");
  if (detail::includes_any(what.rights_, mem_priv::flush_global | mem_priv::flush_persistent))
    return core.at(error(return_type::privileges_violation), detail::rmr_core::bind_call)
        .hint("A window cannot grant flushes: give the peer a segment of the lmr.");
  const mem_priv rights = what.rights_ & detail::remote_rights;
  const detail::window_place place{.region = region,
                                   .address = region->address() + what.offset_,
                                   .length = what.bytes_,
                                   .rights = rights,
                                   .zero_based = what.zero_based_,
                                   .writable = includes(have, mem_priv::local_write)};
  auto bound = core.bind(detail::core_access::of(through), place, detail::request_access::of(what));
  if (!bound) return bound.assume_error();
  return detail::segment_access::make<remote_segment<std::byte, mem_priv::none>>(
      detail::raw_remote{place.first(), place.length, bound.assume_value()});
}

}}} // namespace dat::v0::dynamic
