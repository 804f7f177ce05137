// The name of a user, for messages.
#pragma once

#include <sys/types.h>

#include <string>

namespace gradbus {

// As /etc/passwd has it; "" when it has none. Directory services (LDAP, SSSD) are not asked: their
// answer may take longer than a daemon may pause. Any thread.
std::string local_user_name(uid_t uid);

}  // namespace gradbus
