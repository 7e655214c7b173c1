// Attributes by name: transport, vendor, extensions.
// SPDX-License-Identifier: BSL-1.0
#include "small_device.hpp"
#include "world.hpp"

#include <dat/ib_query.hpp>

using namespace unit;
using type = dat::return_type;

TEST_CASE("named attributes describe transport, vendor and extensions",
          "[ia][IA-073][IA-104][IA-105][IA-138][IBX-002]") {
  auto w = small_device();
  w.devices[1].attr = fake::rxe_attr();
  w.devices[1].attr->atomic_cap = IBV_ATOMIC_NONE;
  auto ia = opened(w);
  const auto a = must(ia.query());
  CHECK(a.vendor_name.view() == "0x0002c9");
  const auto value = [](const dat::named_attributes& all, std::string_view name) {
    const auto* text = all.find(name);
    return text ? std::string(text->view()) : "(none)";
  };
  CHECK(a.transport.size() == 4);
  CHECK(value(a.transport, "link_layer") == "Ethernet");
  CHECK(value(a.transport, "active_mtu") == "4096");
  CHECK(value(a.transport, "port_state") == "active");
  CHECK(value(a.transport, "gid").starts_with("fe80:0000:0000:0000:"));
  CHECK(a.vendor.size() == 5);
  CHECK(value(a.vendor, "device") == "fk1");
  CHECK(value(a.vendor, "port") == "1");
  CHECK(value(a.vendor, "firmware") == "20.31.1014");
  CHECK(value(a.vendor, "node_guid").size() == 18);
  CHECK(value(a.vendor, "colour") == "(none)");

  const auto names = [](const dat::ia& of) {
    std::string all;
    const auto p = must(of.query<dat::provider_attributes>());
    for (const auto& n : p.specific) all.append(n.name).append("=").append(n.value.view()).append(" ");
    return all;
  };
  const std::string always = "DAT_EXTENSION_INTERFACE=TRUE DAT_EXTENSION_VERSION=2 DAT_IB_IMMED_DATA_OP=TRUE "
                             "DAT_IB_IMMED_DATA=TRUE DAT_IB_UD=TRUE DAT_EXT_RDMA_WRITE_IMMED=TRUE "
                             "DAT_EXT_RECV_IMMED_EVENT=TRUE ";
  CHECK(names(ia) == always + "DAT_IB_FETCH_AND_ADD_OP=TRUE DAT_IB_CMP_AND_SWAP_OP=TRUE DAT_IB_FETCH_AND_ADD=TRUE "
                              "DAT_IB_CMP_AND_SWAP=TRUE DAT_EXT_FETCH_AND_ADD=TRUE DAT_EXT_CMP_AND_SWAP=TRUE ");
  CHECK(names(must(dat::ia::open("fk2", manual))) == always);
  // The same extensions as values.
  const auto here = must(dat::ib::query_extensions(ia));
  CHECK(here.version == 2);
  CHECK(here.atomics != dat::ib::atomic_scope::none);
  for (const auto operation :
       {dat::dto_operation::send_immediate, dat::dto_operation::rdma_write_immediate, dat::dto_operation::fetch_and_add,
        dat::dto_operation::compare_and_swap, dat::dto_operation::send_ud, dat::dto_operation::send})
    CHECK(here.supports(operation));
  CHECK_FALSE(here.supports(dat::dto_operation::unbind));
  const auto there = must(dat::ib::query_extensions(must(dat::ia::open("fk2", manual))));
  CHECK(there.atomics == dat::ib::atomic_scope::none);
  CHECK_FALSE(there.supports(dat::dto_operation::fetch_and_add));
  CHECK(there.supports(dat::dto_operation::send_ud));
  CHECK(dat::ib::query_extensions(dat::ia()).error().type() == dat::return_type::invalid_handle);
  ia = {};
  w.devices[0].transport = IBV_TRANSPORT_IWARP;
  const auto iwarp = core_of(w);
  dat::provider_attributes of_iwarp;
  must(dat::detail::query(*iwarp, of_iwarp));
  CHECK(of_iwarp.specific.size() == 0);
}

TEST_CASE("short texts and lists of names never overflow", "[ia][IA-146]") {
  const std::string long_text(300, 'x');
  dat::short_text text{long_text};
  CHECK(text.view() == long_text.substr(0, 63));
  CHECK(text.c_str()[63] == '\0');
  text.append("more");
  CHECK(text.view().size() == 63);
  for (const std::size_t length : {std::size_t{254}, std::size_t{255}, std::size_t{256}, std::size_t{300}}) {
    const dat::name_text name{long_text.substr(0, length)};
    CHECK(name.view().size() == std::min<std::size_t>(length, 255));
    CHECK(std::string_view(name.c_str()) == name.view()); // the terminating zero is at the last place at the latest
  }
  STATIC_REQUIRE(sizeof(dat::name_text) >= 256);
  dat::named_attributes names;
  for (std::size_t i = 0; i < dat::named_attributes::capacity; ++i) CHECK(names.push_back({"n", text}));
  CHECK_FALSE(names.push_back({"one too many", text}));
  CHECK(names.size() == dat::named_attributes::capacity);
  CHECK(names.find("one too many") == nullptr);
  dat::adapter_list adapters;
  for (std::size_t i = 0; i < dat::adapter_list::capacity; ++i) CHECK(adapters.push_back({text}));
  CHECK_FALSE(adapters.push_back({text}));
  CHECK(dat::detail::number_text(0).view() == "0");
  CHECK(dat::detail::number_text(~0ull).view() == "18446744073709551615");
  CHECK(dat::detail::number_text(~0ull, 16).view() == "0xffffffffffffffff");
}

TEST_CASE("an adapter has windows and shared queues where its device has room for one", "[ia]") {
  for (const int room : {0, 1}) {
    auto w = small_device();
    w.devices[0].attr->max_mw = room;
    w.devices[0].attr->max_srq = room;
    const auto p = must(opened(w).query<dat::provider_attributes>());
    CHECK(p.rmr_supported == (room != 0));
    CHECK(p.srq_supported == (room != 0));
  }
}

TEST_CASE("datagrams come to a merged evd where the adapter has datagrams", "[ia][iwarp]") {
  const auto merges = [](fake::personality personality) {
    const fake::with manner{personality};
    const clean_world world;
    const auto ia = must(dat::ia::open("fk1", manual));
    return includes(must(ia.query<dat::provider_attributes>()).evd_stream_merging_supported, dat::streams::datagrams);
  };
  CHECK(merges(fake::personality::kind));
  CHECK_FALSE(merges(fake::personality::iwarp));
}
