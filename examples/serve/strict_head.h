#pragma once

#include <string_view>

struct MHD_Connection;

namespace athanor::serve {

/// Why the head of a request may mean something else to a proxy in front of this server, or to the path's
/// reader; null if it may not. libmicrohttpd accepts several lengths, a length beside a transfer coding,
/// folded lines, NUL bytes and spaces before colons, and reads each in its own way. Where two readers find
/// different ends of a request, the second one may be smuggled in. `method` and `version` as libmicrohttpd
/// passes them; `target`: the bytes between, as received. Source: RFC 9112, sections 3, 5 and 6.3.
const char* fault_of_head(MHD_Connection* connection, std::string_view method, std::string_view target,
                          std::string_view version);

}  // namespace athanor::serve
