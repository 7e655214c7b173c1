// Multicast groups: one datagram that reaches every endpoint in a group.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/datagram.hpp>
#include <dat/expected.hpp>
#include <dat/ud.hpp>

#include <dat/detail/base/enum_name.hpp>
#include <dat/detail/datagram/group_core.hpp>

#include <cstdint>
#include <string_view>
#include <utility>

namespace dat { inline namespace v0 { namespace ib {

/// The purpose for which an endpoint is in a group.
enum class membership : std::uint8_t {
  full,     ///< sends and receives
  send_only ///< only to send: some InfiniBand subnet managers do not support this
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(membership value) noexcept {
  return detail::enum_name(value, {"full", "send_only"}, "unknown membership");
}

/// The membership of an endpoint in a multicast group, through rdma_cm. It ends with this object: the endpoint then
/// gets no more messages of the group.
///
///     auto group = dat::ib::multicast_group::join(ep, dat::ia_address::parse("239.1.2.3").value());
///     evd.wait_for<dat::ib::group_joined>(2s);
///     auto all = group->peer();
///     ep.post(dat::ib::send_to{out, *all});
///
/// A message to the group arrives as any other datagram. It depends on the adapter whether an endpoint gets its own
/// messages. Move-only.
/// Thread safety: one thread at a time.
class multicast_group {
public:
  multicast_group() noexcept = default; ///< names no group

  /// Asks for membership in the group of that address, in the whole subnet. The endpoint's connect evd gets
  /// `ib::group_joined` or `connection_unreachable`.
  /// Errors: `invalid_address` for an address that is not a multicast address, or of a family of which the adapter has
  /// no address; `invalid_state` when the endpoint is disconnected; `model_not_supported` for an IPv6 address on RoCE
  /// v2, of which Linux has no groups; `insufficient_resources`; `invalid_handle`.
  /// Allocates: yes.
  /// Blocks: no.
  /// Thread safety: as the class.
  [[nodiscard]] static expected<multicast_group> join(const ep<ud>& with, const ia_address& group,
                                                      membership how = membership::full) noexcept {
    static constexpr const char* call = "multicast_group.join";
    const detail::ref<detail::ep_core> core(detail::core_access::of(with));
    if (!core || core->dead()) return detail::empty_handle(call, return_subtype::handle_ep);
    auto made = detail::group_core::join(core, group, how == membership::full);
    if (!made) return made.assume_error();
    return multicast_group(std::move(made).assume_value());
  }

  /// The group as the destination of sends of this endpoint. It stays valid when the membership ends.
  /// Members of `quality` that are not set are those of the endpoint.
  /// Errors: `invalid_state` before group_joined has arrived; `invalid_handle`; as ep<ud>::address_of.
  /// Allocates: yes.
  /// Blocks: briefly, in the driver.
  /// Thread safety: as the class.
  [[nodiscard]] expected<address_handle> peer(const qos& quality = {}) const noexcept {
    static constexpr const char* call = "multicast_group.peer";
    if (!core_) return detail::empty_handle(call, return_subtype::handle_ep);
    const auto to = core_->target();
    if (!to)
      return error(return_type::invalid_state).at(call, object_kind::ep).hint("Wait for ib::group_joined first.");
    return detail::address_access::make(call, core_->of(), *to, quality);
  }
  /// The group's address.
  [[nodiscard]] ia_address address() const noexcept { return core_ ? core_->remote_address() : ia_address(); }

  /// Leaves the group.
  /// Errors: `invalid_handle`.
  /// Allocates: no.
  /// Blocks: briefly, in the kernel.
  /// Thread safety: as the class.
  expected<void> leave() noexcept { return core_.close("multicast_group.leave", return_subtype::handle_ep); }
  explicit operator bool() const noexcept { return static_cast<bool>(core_); }

private:
  explicit multicast_group(detail::ref<detail::group_core> core) noexcept : core_(std::move(core)) {}
  detail::handle<detail::group_core> core_;
};

}}} // namespace dat::v0::ib
