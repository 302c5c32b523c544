#include "transport/caller.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace renga {
namespace {

constexpr char kAuthorizationHeader[] = "authorization";
constexpr char kTenantHeader[] = "x-tenant-id";

// Of "Bearer KEY"; the scheme's case does not matter (RFC 9110). Empty if it is no such.
std::string_view BearerKey(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() <= kScheme.size()) return "";
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = value[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    if (lower != kScheme[i]) return "";
  }
  return value.substr(kScheme.size());
}

StatusOr<std::string> TenantOfKey(const grpc::CallbackServerContext& context,
                                  const ApiKeys& keys) {
  const auto& metadata = context.client_metadata();
  const auto [begin, end] = metadata.equal_range(kAuthorizationHeader);
  const std::string* tenant = nullptr;
  if (begin != end && std::next(begin) == end) {
    tenant = keys.TenantOf(BearerKey({begin->second.data(), begin->second.size()}));
  }
  // The same for no key and for a wrong one.
  if (tenant == nullptr) {
    return Status(StatusCode::kUnauthenticated,
                  "this server wants a key that it knows: authorization: Bearer KEY");
  }
  if (metadata.find(kTenantHeader) != metadata.end()) {
    return InvalidArgument(kTenantHeader, "is not taken here: the key says who calls");
  }
  return *tenant;
}

}  // namespace

StatusOr<std::string> Identify(const grpc::CallbackServerContext& context,
                               const ApiKeys* keys) {
  if (keys != nullptr) return TenantOfKey(context, *keys);
  const auto& metadata = context.client_metadata();
  const auto [begin, end] = metadata.equal_range(kTenantHeader);
  if (begin == end) return std::string();
  if (std::next(begin) != end) return InvalidArgument(kTenantHeader, "comes twice");
  const std::string_view tenant(begin->second.data(), begin->second.size());
  if (tenant.size() > ApiKeys::kMaxTenantBytes) {
    return InvalidArgument(kTenantHeader, "must have at most 128 bytes");
  }
  if (!std::all_of(tenant.begin(), tenant.end(),
                   [](char c) { return c >= ' ' && c < '\x7f'; })) {
    return InvalidArgument(kTenantHeader, "must be printable ASCII");
  }
  return std::string(tenant);
}

Status IdentifyAdmin(const grpc::CallbackServerContext& context, const ApiKeys* keys) {
  const StatusOr<std::string> tenant = Identify(context, keys);
  if (!tenant.ok()) return tenant.status();
  if (keys == nullptr || *tenant == kAdminTenant) return OkStatus();
  return Status(StatusCode::kPermissionDenied, "only the tenant \"admin\" may call this");
}

}  // namespace renga
