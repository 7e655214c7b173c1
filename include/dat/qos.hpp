// Quality of service: how the network treats the packets of a connection, of datagrams and of multicast messages.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/error.hpp>
#include <dat/expected.hpp>

#include <dat/detail/base/enum_name.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace dat { inline namespace v0 {

/// The quality of service of the packets that this side sends. A member that is not set has the value of the endpoint,
/// then of the ia, and then of the network. The value of the network is the peer's traffic class for an accepted
/// connection, the path record of the subnet manager on InfiniBand, and 0 otherwise.
///
///     pz.create_ep<dat::rc>(evd, {.qos = dat::qos::low_latency()});
///     ep.connect(address, 7471, 2s, {}, {.qos = {.traffic_class = 26 << 2}}); // DSCP 26
///
/// The named values are those of DAT_QOS (uDAPL 2.0 §6.6.14), as the classes of RFC 4594 and RFC 8622. Whether switches
/// treat the classes differently is a setting of the network. A value.
struct qos {
  /// The traffic class of IPv6, or the type of service of IPv4: DSCP times 4. On most devices, the adapter sets the
  /// lowest two bits, which are for congestion notification.
  std::optional<std::uint8_t> traffic_class = std::nullopt;
  /// The service level, 0..15: the virtual lane on InfiniBand, on RoCE the priority of a VLAN. Not on iWARP.
  std::optional<std::uint8_t> service_level = std::nullopt;
  /// The flow label of the global route header, 0..0xfffff. On RoCE v2 some adapters derive the UDP source port from
  /// it, and so the choice among equal routes. Not on iWARP.
  std::optional<std::uint32_t> flow_label = std::nullopt;

  static constexpr std::uint8_t max_service_level = 15;
  static constexpr std::uint32_t max_flow_label = 0xf'ffff;

  /// DAT_QOS_BEST_EFFORT: DSCP 0, the default class.
  [[nodiscard]] static constexpr qos best_effort() noexcept { return dscp(0); }
  /// DAT_QOS_HIGH_THROUGHPUT: AF11, DSCP 10.
  [[nodiscard]] static constexpr qos high_throughput() noexcept { return dscp(10); }
  /// DAT_QOS_LOW_LATENCY: AF21, DSCP 18.
  [[nodiscard]] static constexpr qos low_latency() noexcept { return dscp(18); }
  /// DAT_QOS_ECONOMY: the lower-effort class of RFC 8622, DSCP 1.
  [[nodiscard]] static constexpr qos economy() noexcept { return dscp(1); }
  /// DAT_QOS_PREMIUM: expedited forwarding, DSCP 46.
  [[nodiscard]] static constexpr qos premium() noexcept { return dscp(46); }

  /// These values, and those of `other` for members that are not set here.
  [[nodiscard]] constexpr qos or_else(const qos& other) const noexcept {
    return {traffic_class ? traffic_class : other.traffic_class, service_level ? service_level : other.service_level,
            flow_label ? flow_label : other.flow_label};
  }

  friend bool operator==(const qos&, const qos&) = default;

private:
  [[nodiscard]] static constexpr qos dscp(unsigned code) noexcept {
    return {.traffic_class = static_cast<std::uint8_t>(code << 2)};
  }
};

/// Whether a connection is to use several paths (DAT_CONNECT_FLAGS, uDAPL 2.0 §6.6.14).
enum class multipath : std::uint8_t {
  none = 0,      ///< one path
  requested = 1, ///< several paths where there are, otherwise one
  required = 2   ///< several paths, otherwise no connection
};
/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(multipath value) noexcept {
  return detail::enum_name(value, {"none", "requested", "required"}, "unknown multipath");
}

/// Further parameters of `connect` and `accept`.
struct connect_options {
  /// Members that are not set are those of the endpoint. On iWARP for `connect` only: the kernel uses the traffic class
  /// of the listening socket for an accepted connection, so `accept` refuses any other with `model_not_supported`.
  dat::qos qos = {};
  /// Anything but `none` is refused with `model_not_supported`: rdma_cm makes a connection over one path, and
  /// provider_attributes::supports_multipath is false.
  dat::multipath multipath = dat::multipath::none;
};

}} // namespace dat::v0

namespace dat { inline namespace v0 { namespace detail {

/// The error of a quality of service that no device can have or, with `iwarp`, no connection of iWARP.
[[nodiscard]] inline expected<void> check_qos(const qos& q, bool iwarp, return_subtype arg) noexcept {
  const auto invalid = [arg](const char* hint) { return error(return_type::invalid_parameter, arg).hint(hint); };
  if (q.service_level > qos::max_service_level) return invalid("qos.service_level must be within 0..15.");
  if (q.flow_label > qos::max_flow_label) return invalid("qos.flow_label must be within 0..0xfffff.");
  if (iwarp && (q.service_level || q.flow_label))
    return error(return_type::model_not_supported)
        .hint("A connection of iWARP has neither a service level nor a flow label: set qos.traffic_class only.");
  return success();
}

/// The error of options that no connection can have. `qos_arg` and `path_arg` are their places in the call of uDAPL.
[[nodiscard]] inline expected<void> check_options(const connect_options& o, bool iwarp, return_subtype qos_arg,
                                                  return_subtype path_arg) noexcept {
  if (o.multipath > multipath::required)
    return error(return_type::invalid_parameter, path_arg).hint("`multipath` must be none, requested or required.");
  if (o.multipath != multipath::none)
    return error(return_type::model_not_supported)
        .hint("A connection has one path: see provider_attributes::supports_multipath.");
  return check_qos(o.qos, iwarp, qos_arg);
}

}}} // namespace dat::v0::detail
