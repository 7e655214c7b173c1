// The attributes of an ia: properties of an adapter, and of this library on it.
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <dat/address.hpp>
#include <dat/port.hpp>
#include <dat/streams.hpp>

#include <dat/detail/base/enum_name.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dat { inline namespace v0 {

/// A short text without allocated memory; a longer text is cut off.
template <std::size_t Capacity>
class fixed_text {
public:
  constexpr fixed_text() noexcept = default;
  constexpr explicit fixed_text(std::string_view text) noexcept { append(text); }
  constexpr void append(std::string_view text) noexcept {
    for (const char c : text.substr(0, text_.size() - 1 - size_)) text_[size_++] = c;
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text_.data(), size_}; }
  /// The text, terminated by a zero.
  [[nodiscard]] constexpr const char* c_str() const noexcept { return text_.data(); }
  friend constexpr bool operator==(const fixed_text& a, const fixed_text& b) noexcept { return a.view() == b.view(); }

private:
  static_assert(Capacity <= 256, "dat: the size is kept in one byte");
  std::array<char, Capacity> text_{};
  std::uint8_t size_ = 0;
};
/// A text of up to 63 bytes.
using short_text = fixed_text<64>;
/// A text of up to 255 bytes, as the names of adapters have (DAT_NAME_MAX_LENGTH, with the terminating zero).
using name_text = fixed_text<256>;

/// A named attribute (DAT_NAMED_ATTR).
struct named_attribute {
  std::string_view name; ///< of static storage
  short_text value;

  friend bool operator==(const named_attribute&, const named_attribute&) = default;
};

/// Up to sixteen named attributes, without allocated memory.
class named_attributes {
public:
  static constexpr std::size_t capacity = 16;
  [[nodiscard]] constexpr const named_attribute* begin() const noexcept { return list_.data(); }
  [[nodiscard]] constexpr const named_attribute* end() const noexcept { return list_.data() + size_; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr const named_attribute& operator[](std::size_t i) const noexcept { return list_[i]; }
  /// The value of the attribute of that name; null when there is none.
  [[nodiscard]] constexpr const short_text* find(std::string_view name) const noexcept {
    for (const named_attribute& a : *this)
      if (a.name == name) return &a.value;
    return nullptr;
  }
  /// Returns false when the list is full.
  constexpr bool push_back(const named_attribute& a) noexcept {
    if (size_ == capacity) return false;
    list_[size_++] = a;
    return true;
  }
  friend bool operator==(const named_attributes&, const named_attributes&) = default;

private:
  std::array<named_attribute, capacity> list_{};
  std::size_t size_ = 0;
};

/// Whether each endpoint is sure to get its maximum of RDMA reads (uDAPL 2.0 §6.2.1.3, the ..._guaranteed attributes).
enum class read_resources : std::uint8_t {
  guaranteed, ///< every endpoint has its own
  shared      ///< the endpoints of the device share a limit, which may not suffice for all
};

/// The extension that a provider has, at most one (DAT_EXTENSION).
enum class extension : std::uint8_t { infiniband, iwarp, none };

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(read_resources value) noexcept {
  return detail::enum_name(value, {"guaranteed", "shared"}, "unknown read_resources");
}
[[nodiscard]] constexpr std::string_view to_string(extension value) noexcept {
  return detail::enum_name(value, {"infiniband", "iwarp", "none"}, "unknown extension");
}

/// The attributes of the adapter, equal for every program that opens it (DAT_IA_ATTR, uDAPL 2.0 §6.2.1.3). Names are
/// those of DAT. A limit is an upper bound: other programs, and the sizes of one object, may leave less. If max_rmrs or
/// max_srqs is 0, the device has no such objects.
struct ia_attributes {
  /// The name that the ia was opened by. If it was opened without a name, by an address or by a route: the name by
  /// which `ia::open` opens it.
  name_text adapter_name;
  short_text device_name; ///< the verbs device's name
  std::uint8_t port = 1;  ///< its port
  short_text vendor_name; ///< verbs have numbers only: "0x0002c9"
  std::uint32_t vendor_id = 0;
  std::uint32_t vendor_part_id = 0;
  std::uint32_t hardware_version_major = 0;
  std::uint32_t hardware_version_minor = 0; ///< always 0: verbs devices have one version number
  std::uint32_t firmware_version_major = 0; ///< the first number of "20.31.1014"; 0 without numbers
  std::uint32_t firmware_version_minor = 0;
  short_text firmware_version; ///< the whole text of the version
  ia_address address;          ///< ia_address_ptr: as ia::address()

  dat::link_layer link_layer = dat::link_layer::unspecified;
  port_state state = port_state::unknown; ///< the state at the time of the query
  std::uint32_t active_mtu = 0;           ///< bytes of one packet; 0 unknown
  std::uint32_t link_width = 0;           ///< lanes; 0 unknown
  std::uint64_t link_speed = 0;           ///< bits per second of all lanes together; 0 unknown
  std::uint32_t num_comp_vectors = 0;     ///< for evd_options::completion_vector
  short_text pci_address;                 ///< "0000:3b:00.0"; empty when the device is not on a PCI bus
  std::optional<std::uint32_t> numa_node; ///< empty when the host has one node, or the device is virtual
  std::uint64_t node_guid = 0;            ///< host byte order
  std::uint64_t system_image_guid = 0;    ///< host byte order; the same for the devices of one adapter

  std::uint32_t max_eps = 0;                      ///< the limit for all programs together
  std::uint32_t max_dto_per_ep = 0;               ///< requests, and as many receives, outstanding at an endpoint
  std::uint32_t max_rdma_read_per_ep_in = 0;      ///< RDMA reads that an endpoint serves at a time
  std::uint32_t max_rdma_read_per_ep_out = 0;     ///< RDMA reads that an endpoint runs at a time
  std::uint64_t max_rdma_read_in = 0;             ///< RDMA reads that the device serves at a time
  std::uint64_t max_rdma_read_out = 0;            ///< RDMA reads that the device runs at a time
  read_resources max_rdma_read_per_ep_in_kind{};  ///< max_rdma_read_per_ep_in_guaranteed
  read_resources max_rdma_read_per_ep_out_kind{}; ///< max_rdma_read_per_ep_out_guaranteed
  std::uint32_t max_evds = 0;                     ///< evds with the stream dto; only memory limits others
  std::uint32_t max_evd_qlen = 0;                 ///< events
  std::uint32_t max_iov_segments_per_dto = 0;
  std::uint32_t max_iov_segments_per_rdma_read = 0;
  std::uint32_t max_iov_segments_per_rdma_write = 0;
  std::uint32_t max_lmrs = 0;           ///< the limit for all programs together
  std::uint64_t max_lmr_block_size = 0; ///< bytes
  std::uint64_t max_lmr_virtual_address = 0;
  std::uint32_t max_pzs = 0;
  std::uint64_t max_message_size = 0; ///< bytes of a send
  std::uint64_t max_rdma_size = 0;    ///< bytes of an RDMA operation
  std::uint32_t max_rmrs = 0;
  std::uint64_t max_rmr_target_address = 0;
  std::uint32_t max_srqs = 0; ///< 0: the device has none
  std::uint32_t max_ep_per_srq = 0;
  std::uint32_t max_recv_per_srq = 0; ///< buffers outstanding

  dat::extension extension_supported = extension::none;
  std::uint32_t extension_version = 0; ///< the version of the InfiniBand extensions; 0 without them

  named_attributes transport; ///< transport_attr: link_layer, active_mtu, port_state, gid (the first, as text)
  named_attributes vendor;    ///< vendor_attr: device, port, firmware, node_guid, system_image_guid

  friend bool operator==(const ia_attributes&, const ia_attributes&) = default;
};

/// One entry of `ia::list_adapters()`: an adapter, open or not.
struct adapter {
  short_text name;                                       ///< as `ia::open` takes it: "mlx5_0", "mlx5_0/2"
  port_state state = port_state::unknown;                ///< unknown also when the device may not be opened
  std::optional<std::uint32_t> numa_node = std::nullopt; ///< see ia_attributes::numa_node
  /// Set by ia::list_adapters_near only: the distance of the node from the node of the processor, as the firmware
  /// states it. The distance is 10 for the same node, and usually 20 or more for another node.
  std::optional<std::uint32_t> numa_distance = std::nullopt;
};

/// The adapters of a host, up to 64.
class adapter_list {
public:
  static constexpr std::size_t capacity = 64;
  [[nodiscard]] const adapter* begin() const noexcept { return list_.data(); }
  [[nodiscard]] const adapter* end() const noexcept { return list_.data() + size_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] const adapter& operator[](std::size_t i) const noexcept { return list_[i]; }
  [[nodiscard]] adapter& operator[](std::size_t i) noexcept { return list_[i]; }
  /// Returns false when the list is full.
  bool push_back(const adapter& a) noexcept {
    if (size_ == capacity) return false;
    list_[size_++] = a;
    return true;
  }

private:
  std::array<adapter, capacity> list_{};
  std::size_t size_ = 0;
};

/// The endpoints on which the key of an rmr is valid (DAT_RMR_SCOPE); the values are DAT's.
enum class rmr_scope : std::uint8_t {
  ep = 0,  ///< on the connection that it is bound through
  pz = 1,  ///< on all connections of its zone
  any = 2, ///< both scopes; only in provider_attributes
};
[[nodiscard]] constexpr std::string_view to_string(rmr_scope value) noexcept {
  return detail::enum_name(value, {"ep", "pz", "any"}, "unknown rmr_scope");
}

/// The owner of the array of segments after a post has returned (DAT_IOV_OWNERSHIP).
enum class iov_ownership : std::uint8_t { consumer, provider_no_modify, provider_modify };
/// The kinds of memory that can be registered (DAT_MEM_TYPE).
enum class mem_type : std::uint8_t { virtual_memory, lmr, shared_virtual };
/// Whether a service point makes the endpoint for a request (DAT_EP_CREATOR_FOR_PSP).
enum class psp_creates_ep : std::uint8_t { never, if_asked, always };
/// Whether protection zones separate their objects from all others (DAT_PZ_SUPPORT).
enum class pz_support : std::uint8_t { unique, shareable };
/// The way in which connections are spread over paths (DAT_HA_LB).
enum class ha_load_balancing : std::uint8_t { none, inter_connection, intra_connection };

/// DAT_COMPLETION_FLAGS, one by one.
struct completion_flags {
  bool suppress = false;
  bool solicited_wait = false;
  bool unsignalled = false;
  bool barrier_fence = false;
  bool evd_threshold = false;

  friend bool operator==(const completion_flags&, const completion_flags&) = default;
};

/// Watermarks of shared receive queues and their endpoints. The high ones need a recv evd with more than
/// dat::stream::dto.
struct srq_watermarks {
  bool low = false;
  bool soft_high = false;
  bool hard_high = false;

  /// The value of DAT's srq_watermarks_supported.
  [[nodiscard]] constexpr std::uint32_t dat_code() const noexcept {
    return (low ? 0x001u : 0) | (soft_high ? 0x010u : 0) | (hard_high ? 0x100u : 0);
  }
  friend bool operator==(const srq_watermarks&, const srq_watermarks&) = default;
};
/// The counts that `srq::query` returns; the number of available buffers may be unknown, see there.
struct srq_counts {
  bool available = false;
  bool outstanding = false;

  /// The value of DAT's srq_info_supported.
  [[nodiscard]] constexpr std::uint32_t dat_code() const noexcept {
    return (available ? 0x01u : 0) | (outstanding ? 0x10u : 0);
  }
  friend bool operator==(const srq_counts&, const srq_counts&) = default;
};

/// Returns the name of the enumerator, or "unknown ..." for a value outside the enumeration. Never allocates.
[[nodiscard]] constexpr std::string_view to_string(iov_ownership value) noexcept {
  return detail::enum_name(value, {"consumer", "provider_no_modify", "provider_modify"}, "unknown iov_ownership");
}
[[nodiscard]] constexpr std::string_view to_string(mem_type value) noexcept {
  return detail::enum_name(value, {"virtual_memory", "lmr", "shared_virtual"}, "unknown mem_type");
}
[[nodiscard]] constexpr std::string_view to_string(psp_creates_ep value) noexcept {
  return detail::enum_name(value, {"never", "if_asked", "always"}, "unknown psp_creates_ep");
}
[[nodiscard]] constexpr std::string_view to_string(pz_support value) noexcept {
  return detail::enum_name(value, {"unique", "shareable"}, "unknown pz_support");
}
[[nodiscard]] constexpr std::string_view to_string(ha_load_balancing value) noexcept {
  return detail::enum_name(value, {"none", "inter_connection", "intra_connection"}, "unknown ha_load_balancing");
}

/// The attributes of this library on the opened adapter (DAT_PROVIDER_ATTR, uDAPL 2.0 §6.2.1.4). Names are those of
/// DAT.
struct provider_attributes {
  std::string_view provider_name = "dat";
  std::uint32_t provider_version_major = 0;
  std::uint32_t provider_version_minor = 0;
  std::uint32_t dapl_version_major = 2;
  std::uint32_t dapl_version_minor = 0;

  iov_ownership iov_ownership_on_return = iov_ownership::consumer;
  completion_flags completion_flags_supported{
      .suppress = true, .solicited_wait = true, .unsignalled = true, .barrier_fence = true, .evd_threshold = true};
  /// DAT calls a provider thread-safe only if any two calls may overlap. In dat two calls must not overlap if both post
  /// operations of one kind to one endpoint, or if both take from one completions-only evd (docs/thread-safety.md).
  bool is_thread_safe = false;
  bool is_signal_safe = false;
  std::size_t max_private_data_size = 56; ///< bytes, for connect, accept and reject alike; rdma_cm carries no more
  bool supports_multipath = false;
  psp_creates_ep ep_creator = psp_creates_ep::if_asked;
  dat::pz_support pz_support = pz_support::unique;
  std::size_t optimal_buffer_alignment = 64; ///< bytes: a cache line
  /// The streams of which an evd may merge any (evd_stream_merging_supported).
  streams evd_stream_merging_supported = streams::software | streams::connection_requests | streams::dto |
                                         streams::connection | streams::rmr_bind | streams::async;

  bool srq_supported = false;
  srq_watermarks srq_watermarks_supported{};
  bool srq_ep_pz_difference_supported = false; ///< an endpoint and its srq must be of one zone
  srq_counts srq_info_supported{};
  /// Adapters do not report how many buffers an endpoint has taken from an srq.
  bool ep_recv_info_supported = false;
  bool rmr_supported = false;                     ///< whether RMRs are supported
  rmr_scope rmr_scope_supported = rmr_scope::any; ///< the scopes that are supported
  bool lmr_sync_req = false;                      ///< memory is coherent: no calls to synchronise it
  bool zb_supported = true;                       ///< zero-based addresses of memory regions
  bool ha_supported = false;
  ha_load_balancing ha_loadbalancing = ha_load_balancing::none;
  bool dto_async_return_guaranteed = true;   ///< success of a send or RDMA write means that the peer has checked it
  bool rdma_write_for_rdma_read_req = false; ///< the target of an RDMA read needs remote_write
  bool rdma_read_lmr_rmr_context_exposure = false; ///< an RDMA read sends the key of its target to the peer
  bool immediate_data_supported = true;            ///< DAT_IB_IMMED_DATA_OP; not on iWARP
  std::uint8_t qos_supported = 0x0f;               ///< dat_qos_supported: all classes of DAT_QOS; see dat::qos

  /// provider_specific_attr: the supported IB extensions by name; a name in the list means support. The names of the
  /// document are DAT_EXTENSION_INTERFACE, DAT_EXTENSION_VERSION, DAT_IB_IMMED_DATA_OP, DAT_IB_FETCH_AND_ADD_OP and
  /// DAT_IB_CMP_AND_SWAP_OP. Its implementations use DAT_IB_IMMED_DATA, DAT_IB_UD, DAT_IB_FETCH_AND_ADD and
  /// DAT_IB_CMP_AND_SWAP. The proposal of 2005 has DAT_EXT_RDMA_WRITE_IMMED, DAT_EXT_RECV_IMMED_EVENT,
  /// DAT_EXT_FETCH_AND_ADD and DAT_EXT_CMP_AND_SWAP. As values: <dat/ib_query.hpp>.
  named_attributes specific;

  /// lmr_mem_types_supported. Kinds besides virtual memory are in <dat/memory.hpp>.
  [[nodiscard]] constexpr bool supports(mem_type t) const noexcept { return t <= mem_type::shared_virtual; }
};

}} // namespace dat::v0
