package view

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// Types of an Application's resources, as engines and agents exchange them. All their texts are
// untrusted.
type (
	// Tree is an Application's resources down to its Pods.
	Tree = mirror.Tree
	// TreeNode is one resource of a Tree.
	TreeNode = mirror.TreeNode
	// ResourceRef identifies one object of a cluster.
	ResourceRef = mirror.ResourceRef
	// ResourceDetail is the live and the desired manifest of one resource.
	ResourceDetail = mirror.ResourceDetail
	// Container is the state of one container of a Pod.
	Container = mirror.Container
	// ApplicationDiff is the difference between live and desired resources.
	ApplicationDiff = mirror.ApplicationDiff
	// ResourceDiff is the difference of one resource.
	ResourceDiff = mirror.ResourceDiff
	// ResourceEvent is a Kubernetes Event about a resource.
	ResourceEvent = mirror.ResourceEvent
	// LogRequest selects the logs of one container.
	LogRequest = mirror.LogRequest
	// LogLine is one line of a container's log.
	LogLine = mirror.LogLine
	// LogEnd is why a stream of logs has ended.
	LogEnd = mirror.LogEnd
	// PastSync is a sync of an Application.
	PastSync = mirror.PastSync
	// SyncResult is what a sync has done with one resource.
	SyncResult = mirror.SyncResult
	// InspectedApplication is the Application whose resources are read.
	InspectedApplication = mirror.InspectedApplication
)

// ID identifies the Application.
func (a Application) ID() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
		Environment: a.Environment}
}

// Inspected returns the Application as reads of its resources name it.
func (a Application) Inspected() InspectedApplication {
	return InspectedApplication{ID: a.ID(), Engine: a.Engine, Name: a.Name, Object: a.Object(),
		UID: a.UID}
}
