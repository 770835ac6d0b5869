package stack

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
)

// settings is Gitea's app.ini, with the folder that it reads its pages from.
func (f *Forge) settings(static string) (string, error) {
	db, err := url.Parse(f.database)
	if err != nil || db.User == nil {
		return "",
			fmt.Errorf("the database must be a URL with a user, as Postgres.NewDatabase gives: %w",
				err)
	}
	password, _ := db.User.Password()
	secret := rand.Text() + rand.Text()
	return strings.NewReplacer(
		"{home}", f.home, "{static}", static, "{url}", f.URL, "{port}", fmt.Sprint(f.port),
		"{secret}", secret, "{ssh}", f.sshSettings(),
		"{db.host}", db.Host, "{db.name}", strings.TrimPrefix(db.Path, "/"), "{db.user}",
		db.User.Username(), "{db.password}", password,
		"{crons}", idleCrons(),
	).Replace(forgeSettings), nil
}

// idleCrons turns off what Gitea would do by the clock: it has no single
// setting for that.
func idleCrons() string {
	var b strings.Builder
	for _, task := range []string{
		"update_mirrors", "repo_health_check", "check_repo_stats", "archive_cleanup",
		"sync_external_users", "deleted_branches_cleanup",
		"update_migration_poster_id", "cleanup_hook_task_table", "cleanup_packages",
		"update_checker",
	} {
		fmt.Fprintf(&b, "[cron.%s]\nENABLED = false\nRUN_AT_START = false\n", task)
	}
	return b.String()
}

// forgeSettings keep it quick and quiet: queues in memory, since Gitea polls those on disk every
// two seconds only; cheap password hashes; no indexer, no mail, no request to another host.
const forgeSettings = `APP_NAME = forge
RUN_MODE = prod
WORK_PATH = {home}
[server]
PROTOCOL = http
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
DOMAIN = 127.0.0.1
ROOT_URL = {url}/
STATIC_ROOT_PATH = {static}
APP_DATA_PATH = {home}/data
{ssh}
OFFLINE_MODE = true
LFS_START_SERVER = false
GRACEFUL_HAMMER_TIME = 2s
[database]
DB_TYPE = postgres
HOST = {db.host}
NAME = {db.name}
USER = {db.user}
PASSWD = {db.password}
SSL_MODE = disable
MAX_OPEN_CONNS = 20
LOG_SQL = false
[security]
INSTALL_LOCK = true
SECRET_KEY = {secret}
INTERNAL_TOKEN = {secret}
PASSWORD_HASH_ALGO = pbkdf2$1000$50
[repository]
ROOT = {home}/repositories
DEFAULT_BRANCH = main
[service]
DISABLE_REGISTRATION = true
AUTO_WATCH_NEW_REPOS = false
ENABLE_USER_HEATMAP = false
[webhook]
ALLOWED_HOST_LIST = loopback
DELIVER_TIMEOUT = 10
[queue]
TYPE = channel
[log]
MODE = console
LEVEL = Warn
logger.router.MODE =
[cache]
ADAPTER = memory
[session]
PROVIDER = memory
[indexer]
ISSUE_INDEXER_TYPE = db
REPO_INDEXER_ENABLED = false
[time]
DEFAULT_UI_LOCATION = UTC
[mailer]
ENABLED = false
[actions]
ENABLED = false
[packages]
ENABLED = false
[oauth2]
ENABLED = false
[mirror]
ENABLED = false
[federation]
ENABLED = false
[api]
ENABLE_SWAGGER = false
[other]
SHOW_FOOTER_VERSION = false
{crons}`
